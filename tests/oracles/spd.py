"""Independent references in float64: numpy and scipy only, written from the definitions."""

from __future__ import annotations

import numpy as np
import scipy.stats


def orthogonal(side: int, seed: int) -> np.ndarray:
    return scipy.stats.ortho_group.rvs(side, random_state=seed) if side > 1 else np.ones((1, 1))


def with_spectrum(values: list[float], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A symmetric matrix with these eigenvalues, and its eigenvectors."""
    basis = orthogonal(len(values), seed)
    return basis @ np.diag(values) @ basis.T, basis


def spectral(values: list[float], basis: np.ndarray, f, clip: tuple[float, float]) -> np.ndarray:
    """Q f(clip(d)) Q^T, from eigenvalues that are known by construction and not computed."""
    return basis @ np.diag(f(np.clip(values, *clip))) @ basis.T


def gaussian(features: np.ndarray, ridge: float, unbiased: bool = False) -> np.ndarray:
    """Eq. 5-8, entry by entry."""
    channels, positions = features.shape
    mean = features.sum(1) / positions
    covariance = np.zeros((channels, channels))
    for n in range(positions):
        d = features[:, n] - mean
        covariance += np.outer(d, d)
    covariance /= positions - 1 if unbiased else positions
    matrix = np.block([[covariance + np.outer(mean, mean), mean[:, None]], [mean[None], np.ones((1, 1))]])
    return matrix + ridge * np.trace(matrix) * np.eye(channels + 1)


def numeric_gradient(function, matrix: np.ndarray, weight: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Central differences of <weight, f(G)> along symmetric directions."""
    side = len(matrix)
    gradient = np.zeros_like(matrix)
    for i in range(side):
        for j in range(i, side):
            bump = np.zeros_like(matrix)
            bump[i, j] = bump[j, i] = step
            slope = (weight * (function(matrix + bump) - function(matrix - bump))).sum() / (2 * step)
            gradient[i, j] = gradient[j, i] = slope if i == j else slope / 2
    return gradient


def rectified(f, clip: tuple[float, float]):
    """G -> f(clip(eig(G))), by numpy's eigh, for finite differences."""

    def function(matrix: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(matrix)
        return (vectors * f(np.clip(values, *clip))) @ vectors.T

    return function
