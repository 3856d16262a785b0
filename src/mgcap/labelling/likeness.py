"""How like each other the cells of a pool are: cosines of vectors that are centred on the mean of the pool.

Vectors stay in half precision, as a second set of them would take as much memory again. What was found of labelled
cells is kept: a new label costs one product with all cells, one that is taken back a product with the cells that were
nearest to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mgcap.threads import one_thread, side_by_side
from mgcap.typing import Array

#: Cells that are compared at a time.
TOGETHER = 16_384


def in_parts(function: Callable[[slice], None], count: int) -> None:
    """Call a function for parts of a fixed number of cells, each on one thread."""
    parts = [slice(start, start + TOGETHER) for start in range(0, count, TOGETHER)]
    if len(parts) > 1:
        side_by_side(function, parts)
        return
    with one_thread():
        for part in parts:
            function(part)


class Likeness:
    """Cosines between the cells of a pool.

    Args:
        vectors: ``[n, p]`` in half precision.
    """

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors

    @cached_property
    def mean(self) -> Tensor:
        """``[p]``: of all cells."""
        sums = torch.zeros(-(-len(self.vectors) // TOGETHER), self.vectors.shape[1], dtype=torch.float64)

        def fill(part: slice) -> None:
            sums[part.start // TOGETHER] = self.vectors[part].float().sum(0, dtype=torch.float64)

        in_parts(fill, len(self.vectors))
        return (sums.sum(0) / max(1, len(self.vectors))).float()

    @cached_property
    def lengths(self) -> Tensor:
        """``[n]``: of the centred vectors."""
        found, mean = torch.empty(len(self.vectors)), self.mean

        def fill(part: slice) -> None:
            found[part] = (self.vectors[part].float() - mean).norm(dim=1)

        in_parts(fill, len(found))
        return found.clamp_min_(1e-12)

    @cached_property
    def spread(self) -> float:
        """The mean square of the lengths."""
        return float(self.lengths.double().square().mean())

    def directions(self, cells: Array) -> Tensor:
        """``[m, p]`` of length one."""
        chosen = torch.from_numpy(np.asarray(cells, np.int64))
        return (self.vectors[chosen].float() - self.mean) / self.lengths[chosen].unsqueeze(1)

    def to(self, cells: Array, members: Array | None = None) -> Tensor:
        """Cosines ``[m, c]`` of members, all cells without, with some cells."""
        directions = self.directions(cells)
        if members is not None:
            return self.directions(members) @ directions.T
        # of centred vectors: x^T u - mean^T u, which needs no centred copy of all
        off = directions @ self.mean
        found = torch.empty(len(self.vectors), len(directions))
        lengths = self.lengths.unsqueeze(1)

        def fill(part: slice) -> None:
            torch.mm(self.vectors[part].float(), directions.T, out=found[part])
            found[part].sub_(off).div_(lengths[part])

        in_parts(fill, len(found))
        return found


class Nearest:
    """The nearest labelled cell of each cell, kept while labels come and go."""

    def __init__(self, likeness: Likeness) -> None:
        self.likeness = likeness
        self._labelled: set[int] = set()
        self._cosine = torch.full((len(likeness.vectors),), -1.0)
        self._which = torch.full((len(likeness.vectors),), -1, dtype=torch.int64)

    def distance(self, cells: Array) -> Array:
        """``[n]``: one minus the cosine with the nearest of some cells; two where there are none.

        Args:
            cells: All that are labelled now, in any order.
        """
        wanted = {int(cell) for cell in cells}
        if len(wanted) == len(self._which):  # each is its own nearest, however many there are
            return np.zeros(len(wanted), np.float32)
        gone = torch.tensor(sorted(self._labelled - wanted), dtype=torch.int64)
        kept = np.array(sorted(self._labelled & wanted), np.int64)
        if len(gone):
            lost = torch.isin(self._which, gone).nonzero()[:, 0]
            self._cosine[lost], self._which[lost] = -1.0, -1
            if len(kept) and len(lost):
                best = self.likeness.to(kept, lost.numpy()).max(1)
                self._cosine[lost], self._which[lost] = best.values, torch.from_numpy(kept)[best.indices]
        new = np.array(sorted(wanted - self._labelled), np.int64)
        for part in np.array_split(new, -(-len(new) // 128)) if len(new) else ():
            best = self.likeness.to(part).max(1)
            nearer = best.values > self._cosine
            self._cosine = torch.where(nearer, best.values, self._cosine)
            self._which = torch.where(nearer, torch.from_numpy(part)[best.indices], self._which)
        self._labelled = wanted
        found: Array = (1 - self._cosine).clamp(0, 2).numpy()
        return found
