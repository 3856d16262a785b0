"""Pools that are drawn: land in stripes or patches of a few kinds."""

from __future__ import annotations

import numpy as np
import torch

from mgcap.labelling.pool import Pool
from mgcap.typing import Array


def grid_pool(
    side: int = 20, kinds: int = 3, noise: float = 0.3, step: float = 1.0, seed: int = 0
) -> tuple[Pool, Array]:
    """A pool of ``side`` by ``side`` cells, and the kind of each: patches of four cells, drawn at random.

    Args:
        side: Of the square.
        kinds: How many there are.
        noise: How far cells lie from the middle of their kind.
        step: From cell to cell, in tiles: below one tiles overlap.
        seed: Of all that is drawn.
    """
    rng = np.random.default_rng(seed)
    patches = rng.integers(kinds, size=(-(-side // 2), -(-side // 2)))
    truth = np.kron(patches, np.ones((2, 2), int))[:side, :side].ravel()
    middles = rng.normal(size=(kinds, 24))
    vectors = torch.from_numpy(middles[truth] + noise * rng.normal(size=(len(truth), 24))).half()
    rows, columns = np.divmod(np.arange(side * side), side)
    cells = np.column_stack((np.zeros_like(rows), rows, columns))
    places = (np.column_stack((columns, rows)) + 0.5) * 100 * step
    return Pool(vectors, cells, places, 100.0, torch.zeros(24)), truth


def some_labels(truth: Array, count: int, seed: int = 0) -> dict[int, int]:
    """The truth of cells that are drawn."""
    chosen = np.random.default_rng(seed).permutation(len(truth))[:count]
    return {int(cell): int(truth[cell]) for cell in chosen}
