"""The cells of a pool that are most like one of them, to label many of a kind at once.

Descriptors do not change when a picture is rotated, so neither does what is found.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch

from mgcap.labelling.likeness import in_parts
from mgcap.labelling.pool import Pool


def similar(pool: Pool, cell: int, count: int = 10, skip: Collection[int] = ()) -> list[tuple[int, float]]:
    """Cells and their cosines with a cell, the most like first; their tiles overlap neither its own nor each other.

    Args:
        pool: The cells.
        cell: The number of one.
        count: How many, at most.
        skip: Cells that are left out, as the labelled ones.
    """
    own = pool.directions[cell].float()
    every = torch.empty(len(pool))

    def fill(part: slice) -> None:
        torch.mv(pool.directions[part].float(), own, out=every[part])

    in_parts(fill, len(pool))
    cosines = every.numpy()
    left = np.ones(len(pool), bool)
    left[np.fromiter(skip, np.int64, len(skip))] = False
    left[cell] = False
    left[pool.near(cell)] = False
    found: list[tuple[int, float]] = []
    for other in np.argsort(-cosines, kind="stable"):
        if len(found) >= count:
            break
        if left[other]:
            found.append((int(other), float(cosines[other])))
            left[pool.near(int(other))] = False
    return found
