"""Images that are alike in descriptor space, and a map of all of them."""

from __future__ import annotations

import numpy as np

from mgcap.embedding import TINY
from mgcap.typing import Array


def nearest(queries: Array, descriptors: Array, count: int) -> tuple[Array, Array]:
    """The nearest descriptors by cosine.

    Args:
        queries: ``[n, d]``.
        descriptors: ``[m, d]``.
        count: How many for each.

    Returns:
        Their numbers ``[n, count]``, the nearest first, and their cosines.
    """
    unit = [
        rows.astype(np.float32) / np.linalg.norm(rows.astype(np.float32), axis=1, keepdims=True).clip(TINY)
        for rows in (queries, descriptors)
    ]
    cosines = unit[0] @ unit[1].T
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
    return order, np.take_along_axis(cosines, order, axis=1)


def plane(descriptors: Array, method: str = "tsne", seed: int = 0) -> Array:
    """Two dimensions ``[n, 2]`` in [0, 1] by PCA, or by t-SNE of the first 50 principal components.

    Args:
        descriptors: ``[n, d]``.
        method: ``pca`` or ``tsne``; of less than five images always the former.
        seed: Of t-SNE.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    rows = descriptors.astype(np.float32)
    if len(rows) < 2:
        return np.full((len(rows), 2), 0.5)
    flat = PCA(min(50, *rows.shape), random_state=seed).fit_transform(rows)
    if method == "tsne" and len(rows) >= 5:
        perplexity = min(30.0, (len(rows) - 1) / 3)
        flat = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(flat)
    flat = flat[:, :2] if flat.shape[1] > 1 else np.pad(flat, ((0, 0), (0, 1)))
    low, high = flat.min(0), flat.max(0)
    spread: Array = (flat - low) / np.maximum(high - low, TINY)
    return spread
