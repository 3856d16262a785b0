"""The cells of indexes that are most like some vectors; beyond a million cells by an approximate index.

Likeness is the cosine of descriptors. Vectors of an index are projected and centred on a mean; the mean is added again
before they are compared, as cosines of centred vectors find worse (docs/search.md has the figures).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgcap.embedding import TINY
from mgcap.errors import RasterError
from mgcap.geo.approximate import Approximate, approximate_index
from mgcap.geo.blocks import Axis
from mgcap.geo.earth import to_ground
from mgcap.geo.index import Index, open_index
from mgcap.inference.projection import shipped_projection
from mgcap.runtime import Progress, silent
from mgcap.threads import one_thread, side_by_side
from mgcap.typing import Array

#: With more cells than this together, large indexes are searched approximately.
EXACT_CELLS = 1_000_000
#: An index with fewer cells that have data is always searched exactly.
LARGE_INDEX = 100_000
#: The longest vectors of an approximate index: its memory grows with them.
LONGEST = 1024
#: Vectors of up to this number of bytes stay in memory between searches.
KEPT_BYTES = 2 << 30
#: Tiles of two indexes that are this part of a tile apart only touch, whatever the rounding.
TOUCHING = 1 - 1e-6
#: Numbers that are compared together in single precision.
TOGETHER = 1 << 22
#: Scores that are kept before the lowest are dropped.
HELD = 1 << 18


class Near(NamedTuple):
    """A cell that is like what was searched for."""

    number: int  #: that of its index
    row: int
    column: int
    score: float  #: the cosine


class _Block(NamedTuple):
    """Cells of an index that have data."""

    cells: Array  #: ``[n]``: row by row
    vectors: Tensor  #: ``[n, p]`` in half precision
    lengths: Tensor  #: ``[n]``: of the vectors with the mean


@dataclass
class Gallery:
    """Indexes that are searched together; what is kept of them makes the second search faster.

    Attributes:
        indexes: Of the same descriptor and projection.
        progress: Where to report.
    """

    indexes: list[Index]
    progress: Progress = silent
    _kept: dict[int, list[_Block]] = field(default_factory=dict)
    _made: dict[int, Approximate | None] = field(default_factory=dict)

    @classmethod
    def open(cls, names: Sequence[str | Path | Index], progress: Progress = silent) -> Gallery:
        """Open indexes.

        Raises:
            RasterError: If one cannot be read, or they cannot be searched together.
        """
        if not names:
            raise RasterError("give at least one index to search")
        indexes = [name if isinstance(name, Index) else open_index(name) for name in names]
        indexes = list({index.name: index for index in indexes}.values())
        first = indexes[0]
        for other in indexes[1:]:
            for what in ("descriptor", "projection"):
                if getattr(other.about, what) != getattr(first.about, what):
                    raise RasterError(
                        f"{other.name} has another {what} than {first.name}, so their cells cannot be compared; "
                        "make both indexes with the same model and version"
                    )
        return cls(indexes, progress)

    @property
    def cells(self) -> int:
        """How many cells there are, with those that have no data."""
        return sum(index.plan.grid.rows * index.plan.grid.columns for index in self.indexes)

    @property
    def length(self) -> int:
        """Numbers of a vector."""
        return int(self.indexes[0].group["vectors"].shape[2])  # type: ignore[union-attr]

    @cached_property
    def mean(self) -> Tensor:
        """``[p]``: what is added to vectors again.

        Raises:
            RasterError: If their projection is not known.
        """
        about = self.indexes[0].about
        projection = shipped_projection(about.projection)
        if projection is None:
            raise RasterError(f"{self.indexes[0].name} has vectors of a projection that this version does not know")
        if projection.mean is None or projection.axes is None:
            return torch.zeros(self.length)
        return projection.axes @ projection.mean

    def best(self, queries: Tensor, top: int, thin: bool = True) -> list[Near]:
        """The cells that are most like any of some vectors, the most like first.

        Args:
            queries: ``[q, p]``.
            top: How many cells.
            thin: Leave out cells whose tile overlaps that of a better one, in indexes of one coordinate system.
        """
        wanted = queries.float() + self.mean
        wanted = wanted / wanted.norm(dim=1, keepdim=True).clamp_min(TINY)
        found = []
        for number, index in enumerate(self.indexes):
            k = index.plan.cells_in_tile
            cells, scores = self._candidates(number, wanted, top * (3 * k) ** 2 if thin else top)
            order = np.lexsort((cells, -scores))
            rows, columns = np.divmod(cells[order], index.plan.grid.columns)
            kept = _apart(index, rows, columns, top) if thin else np.arange(min(top, len(order)))
            found += [(-float(scores[order[n]]), number, int(rows[n]), int(columns[n])) for n in kept]
        best = [Near(number, row, column, -score) for score, number, row, column in sorted(found)]
        return _apart_on_the_ground(self.indexes, best, top) if thin and len(self.indexes) > 1 else best[:top]

    def _candidates(self, number: int, wanted: Tensor, count: int) -> tuple[Array, Array]:
        """The best cells of an index, in any order, with their scores."""
        if (approximate := self._approximate(number)) is not None:
            return approximate.best(wanted.numpy(), count)
        parts = [(np.zeros(0, np.int64), np.zeros(0, np.float32))]
        held = 0
        for block, scores in self._scored(number, wanted):
            parts.append((block.cells, scores))
            held += len(block.cells)
            if held > max(HELD, 2 * count):
                parts = [_first(parts, count)]
                held = len(parts[0][0])
        return _first(parts, count)

    def _approximate(self, number: int) -> Approximate | None:
        """The approximate index of a large index, if there are too many cells to compare each."""
        index = self.indexes[number]
        if self.cells <= EXACT_CELLS or self.length > LONGEST:
            return None
        if number not in self._made:
            size = cells_with_data(index)
            self._made[number] = (
                None
                if size < LARGE_INDEX
                else approximate_index(index.name, lambda: self._units(number), size, self.progress)
            )
        return self._made[number]

    def _scored(self, number: int, wanted: Tensor) -> Iterator[tuple[_Block, Array]]:
        """Blocks with their scores, each on one thread: several would wait for each other on a busy machine."""
        if self._keeps:
            blocks = list(self._blocks(number))
            yield from zip(blocks, side_by_side(lambda block: self._scores(block, wanted), blocks), strict=True)
            return
        for block in self._blocks(number):
            with one_thread():
                scores = self._scores(block, wanted)
            yield block, scores

    def _scores(self, block: _Block, wanted: Tensor) -> Array:
        step = max(1, TOGETHER // self.length)
        moved = wanted @ self.mean
        parts = [block.vectors[start : start + step].float() @ wanted.T for start in range(0, len(block.cells), step)]
        if not parts:
            return np.zeros(0, np.float32)
        scores: Array = ((torch.cat(parts) + moved).amax(1) / block.lengths).nan_to_num(nan=-1.0).numpy()
        return scores

    def _units(self, number: int) -> Iterator[tuple[Array, Array]]:
        """Numbers of cells, and their vectors with the mean, of length one."""
        for block in self._read(number):
            yield block.cells, ((block.vectors.float() + self.mean) / block.lengths[:, None]).numpy()

    @property
    def _keeps(self) -> bool:
        """Whether all vectors stay in memory."""
        return 2 * self.length * self.cells <= KEPT_BYTES

    def _blocks(self, number: int) -> Iterator[_Block]:
        if not self._keeps:
            yield from self._read(number)
            return
        if number not in self._kept:
            self._kept[number] = list(self._read(number))
        yield from self._kept[number]

    def _read(self, number: int) -> Iterator[_Block]:
        """The blocks of an index."""
        index = self.indexes[number]
        columns = index.plan.grid.columns
        with self.progress(f"Reading {Path(index.name).name}", index.plan.chunks) as step:
            for (high, wide), cells in index.blocks():
                rows = np.arange(high.start, high.stop)[:, None] * columns + np.arange(wide.start, wide.stop)
                known = cells.valid > 0
                vectors = torch.from_numpy(cells.vectors[known])
                part = max(1, TOGETHER // self.length)
                lengths = [(some.float() + self.mean).norm(dim=1) for some in torch.split(vectors, part)]
                yield _Block(rows[known], vectors, torch.cat(lengths).clamp_min(TINY) if lengths else torch.zeros(0))
                step(1)


def _first(parts: list[tuple[Array, Array]], count: int) -> tuple[Array, Array]:
    """The cells with the highest scores; of equal ones those that come first."""
    cells, scores = (np.concatenate(every) for every in zip(*parts, strict=True))
    if len(cells) <= count:
        return cells, scores
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    some = np.flatnonzero(scores >= least)
    some = some[np.lexsort((cells[some], -scores[some]))[:count]]
    return cells[some], scores[some]


def tile_middles(index: Index, rows: Array, columns: Array) -> tuple[Array, Array]:
    """The middles (x, y) of the tiles of cells, in pixels of the raster."""
    plan = index.plan
    across = Axis(slice(0, plan.grid.columns), plan.cell[0], plan.size[0], plan.tile[0]).middles
    down = Axis(slice(0, plan.grid.rows), plan.cell[1], plan.size[1], plan.tile[1]).middles
    return across[columns], down[rows]


def _apart(index: Index, rows: Array, columns: Array, count: int) -> list[int]:
    """The first cells, each with a tile that overlaps none of those before."""
    x, y = tile_middles(index, rows, columns)
    width, height = index.plan.tile
    free = np.ones(len(x), bool)
    kept: list[int] = []
    while len(kept) < count and free.any():
        kept.append(int(free.argmax()))
        free &= (abs(x - x[kept[-1]]) >= width) | (abs(y - y[kept[-1]]) >= height)
    return kept


def _apart_on_the_ground(indexes: Sequence[Index], found: Sequence[Near], count: int) -> list[Near]:
    """The first cells, each with a tile that overlaps none of those before in another index."""
    from rasterio.transform import Affine

    numbers = np.array([near.number for near in found], np.int64)
    systems = np.array([index.about.crs for index in indexes], object)[numbers]
    ways = [Affine(*index.about.of_pixels) for index in indexes]
    places = np.zeros((len(found), 2))
    for number, index in enumerate(indexes):
        own = np.flatnonzero(numbers == number)
        rows, columns = (np.array([getattr(found[int(n)], name) for n in own], np.int64) for name in ("row", "column"))
        places[own] = to_ground(ways[number], *tile_middles(index, rows, columns))
    free = np.ones(len(found), bool)
    kept: list[Near] = []
    while len(kept) < count and free.any():
        n = int(free.argmax())
        kept.append(found[n])
        free[n] = False
        if not systems[n] or ways[numbers[n]].is_degenerate:  # nobody knows what its coordinates mean
            continue
        back, (x, y) = ~ways[numbers[n]], (places - places[n]).T
        across, down = abs(back.a * x + back.b * y), abs(back.d * x + back.e * y)
        width, height = (side * TOUCHING for side in indexes[numbers[n]].plan.tile)
        free &= (across >= width) | (down >= height) | (systems != systems[n]) | (numbers == numbers[n])
    return kept


def cells_with_data(index: Index) -> int:
    """How many cells of an index have data."""
    valid: Any = index.group["valid"]
    try:
        return sum(int(np.count_nonzero(valid[index.plan.cells(chunk)])) for chunk in range(index.plan.chunks))
    except Exception as error:  # as for Index.read
        raise RasterError(f"a part of the index {index.name} is damaged; make it again with mgcap index") from error


def missing_blocks(index: Index) -> int:
    """How many blocks of an index were not written yet."""
    try:
        return index.plan.chunks - int(index.group["valid"].nchunks_initialized)  # type: ignore[union-attr]
    except Exception:  # some stores cannot list what they have
        return len(index.missing())
