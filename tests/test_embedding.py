from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mgcap.embedding import covariance, gaussian_embedding, normalise_features
from tests.oracles import spd


@pytest.mark.parametrize("unbiased", [False, True])
def test_gaussian_against_the_oracle(rng: np.random.Generator, unbiased: bool) -> None:
    features = rng.standard_normal((2, 3, 5, 11)) + 1.5
    ours = gaussian_embedding(torch.from_numpy(features), 1e-4, unbiased).numpy()
    assert ours.shape == (2, 3, 6, 6)
    for i in range(2):
        for j in range(3):
            np.testing.assert_allclose(ours[i, j], spd.gaussian(features[i, j], 1e-4, unbiased), atol=1e-9)
    single = gaussian_embedding(torch.from_numpy(features).float(), 1e-4, unbiased).double().numpy()
    assert np.linalg.norm(single - ours) < 1e-4 * np.linalg.norm(ours)


@pytest.mark.parametrize("unbiased", [False, True])
def test_covariance_against_numpy(rng: np.random.Generator, unbiased: bool) -> None:
    features = rng.standard_normal((4, 20))
    expected = np.cov(features, bias=not unbiased)
    expected = expected + 1e-3 * np.trace(expected) * np.eye(4)
    np.testing.assert_allclose(covariance(torch.from_numpy(features), 1e-3, unbiased).numpy(), expected, atol=1e-12)


def test_norms_and_zero_maps() -> None:
    features = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(0)) * 5
    assert torch.allclose(normalise_features(features, "rms").square().mean((-2, -1)), torch.ones(2))
    assert torch.allclose(normalise_features(features, "l2").square().sum((-2, -1)), torch.ones(2))
    assert normalise_features(features, "none") is features
    zeros = gaussian_embedding(normalise_features(torch.zeros(1, 3, 7)))
    assert torch.isfinite(zeros).all()
    assert zeros[0, -1, -1] == pytest.approx(1 + 1e-4)


def test_gradcheck() -> None:
    features = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for function in (
        gaussian_embedding,
        covariance,
        lambda f: gaussian_embedding(normalise_features(f), unbiased=True),
    ):
        assert torch.autograd.gradcheck(function, (features,))


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(2, 12), st.floats(0, 1e-2), st.integers(0, 999))
def test_positive_semidefinite_with_corner_one(channels: int, positions: int, ridge: float, seed: int) -> None:
    features = torch.from_numpy(np.random.default_rng(seed).standard_normal((channels, positions)))
    matrix = gaussian_embedding(features, ridge)
    torch.testing.assert_close(matrix, matrix.mT, rtol=0, atol=1e-14)  # not every BLAS gives both halves alike
    trace = gaussian_embedding(features, 0.0).trace()
    assert matrix[-1, -1].item() == pytest.approx(1 + ridge * trace.item())
    assert torch.linalg.eigvalsh(matrix).min() >= ridge * trace - 1e-9
