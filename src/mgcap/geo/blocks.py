"""Blocks of a raster's cells to vectors: densely where the network allows it, else tile by tile."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgcap.geo.opening import open_raster, reading
from mgcap.geo.plan import Plan
from mgcap.geo.raster import read_window
from mgcap.inference.dense import Described, describe_block
from mgcap.inference.forward import answer, walk
from mgcap.inference.layout import Layout
from mgcap.inference.pipeline import images_together, prefetch, stream_features
from mgcap.inference.projection import projection_for
from mgcap.threads import one_thread
from mgcap.typing import Array

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

    from mgcap.inference.engines import Engine
    from mgcap.model import MGCAP


#: Rows of a raster that are read together.
STRIP = 1024
#: What pixels without data are seen as: their neighbours would differ from block to block.
MISSING = 0.5


class IndexPlan(Plan):
    """How the cells of one raster are described; each by the tile around its middle.

    Attributes:
        block: Cells along the side of what is computed and kept together.
        dense: Whether blocks go through the network as a whole.
        offset: Where the raster's corner lies from a place (x, y) on the ground that all rasters share, in whole
            pixels: positions of features are on one lattice, so that parts of a raster say the same as the whole.
    """

    block: int
    dense: bool
    offset: tuple[int, int] = (0, 0)

    @property
    def chunks(self) -> int:
        """How many blocks there are."""
        return math.ceil(self.grid.rows / self.block) * math.ceil(self.grid.columns / self.block)

    def cells(self, chunk: int) -> tuple[slice, slice]:
        """Rows and columns of a block's cells."""
        row, column = divmod(chunk, math.ceil(self.grid.columns / self.block))
        rows, columns = (slice(n * self.block, (n + 1) * self.block) for n in (row, column))
        return slice(rows.start, min(rows.stop, self.grid.rows)), slice(
            columns.start, min(columns.stop, self.grid.columns)
        )

    @property
    def tile(self) -> tuple[int, int]:
        """Width and height of a tile in pixels, within the raster."""
        return min(self.size[0], self.cells_in_tile * self.cell[0]), min(
            self.size[1], self.cells_in_tile * self.cell[1]
        )

    def axes(self, chunk: int) -> tuple[Axis, Axis]:
        """The columns and the rows of a block."""
        rows, columns = self.cells(chunk)
        return (
            Axis(columns, self.cell[0], self.size[0], self.tile[0]),
            Axis(rows, self.cell[1], self.size[1], self.tile[1]),
        )


class Axis(NamedTuple):
    """Columns or rows of cells, in pixels of the raster."""

    cells: slice
    cell: int  #: side of a cell
    size: int  #: of the raster
    tile: int  #: side of a tile

    def one(self, number: int) -> Axis:
        """One of its cells."""
        first = self.cells.start + number
        return self._replace(cells=slice(first, first + 1))

    @property
    def middles(self) -> Array:
        """The middles of the tiles; tiles stay in the raster."""
        middles = (np.arange(self.cells.start, self.cells.stop) + 0.5) * self.cell
        return middles.clip(self.tile / 2, self.size - self.tile / 2)

    @property
    def centre(self) -> float:
        """Half way between the first tile and the last."""
        return float(self.middles[0] + self.middles[-1]) / 2

    @property
    def cell_edges(self) -> tuple[Array, Array]:
        """Where cells begin and end."""
        begin = np.arange(self.cells.start, self.cells.stop) * self.cell
        return begin, (begin + self.cell).clip(max=self.size)

    @property
    def tile_edges(self) -> tuple[Array, Array]:
        """Where tiles begin and end."""
        return self.middles - self.tile / 2, self.middles + self.tile / 2


class Cells(NamedTuple):
    """What is kept of a block of cells."""

    vectors: Array  #: ``[rows, columns, p]`` float16; zero where there is no data
    rotations: Array  #: ``[rows, columns]`` uint16: the number of the rotation that won most entries
    valid: Array  #: ``[rows, columns]`` uint8: the share of the cell with data, of 255; 0 where nothing is said


def describe_cells(model: MGCAP, engine: Engine, plan: IndexPlan, chunk: int) -> Cells:
    """Read and describe the cells of a block. The same block gives the same numbers on one thread or many."""
    columns, rows = plan.axes(chunk)
    shape = len(rows.middles), len(columns.middles)
    projection = projection_for(model)
    cells = Cells(
        np.zeros((*shape, projection.length(model.head.in_features)), np.float16),
        np.zeros(shape, np.uint16),
        np.zeros(shape, np.uint8),
    )
    way = _densely if plan.dense else _by_tiles
    with open_raster(plan.raster, plan.allow_vrt) as dataset, reading(plan.raster):
        for numbers, described, shares in way(model, engine, plan, dataset, chunk):
            places = np.unravel_index(numbers, shape)
            cells.vectors[places] = projection(described.descriptors.float().cpu()).numpy()
            cells.rotations[places] = described.rotations.cpu().numpy()
            cells.valid[places] = (255 * shares).round().clip(1)
    return cells


#: Numbers of cells in their block, what is said of them, and the share of each that has data.
Part = tuple[Array, Described, Array]


def _densely(model: MGCAP, engine: Engine, plan: IndexPlan, dataset: DatasetReader, chunk: int) -> Iterator[Part]:
    axes = plan.axes(chunk)
    tile = max(plan.shape)  # its side as the model knows it
    scale = np.array([tile / axis.tile for axis in axes])
    # images of blocks begin where pixels of raster and image do, so that a place is resampled alike in all of them
    steps, offset = np.array([axis.tile // math.gcd(axis.tile, tile) for axis in axes]), np.array(plan.offset)
    multiple = math.lcm(*(tile // math.gcd(axis.tile, tile) for axis in axes))
    side = multiple
    while True:
        corner = np.round((np.array([axis.centre for axis in axes]) - side / scale / 2 + offset) / steps)
        corner = corner * steps - offset
        layout = _layout(axes, (corner + side / scale / 2).tolist(), tile, model, plan.offset)
        if layout.side <= side:
            break
        side = math.ceil(layout.side / multiple) * multiple
    corner = corner.astype(int)
    image, valid = _square(dataset, plan, corner, scale, side, steps)
    shares = _Coverage(valid, corner, scale).shares
    of_tiles, of_cells = (shares(*own) for own in zip(*((a.tile_edges, a.cell_edges) for a in axes), strict=True))
    del valid, shares  # large blocks take memory
    wanted = np.flatnonzero((of_tiles >= plan.min_valid) & (of_cells >= plan.min_valid) & (of_cells > 0))
    if len(wanted):
        described = describe_block(model, engine, layout, torch.from_numpy(image), wanted.tolist())
        yield wanted, described, of_cells.flat[wanted]


def _layout(
    axes: Sequence[Axis], middle: Sequence[float], tile: float, model: MGCAP, offset: tuple[int, int] = (0, 0)
) -> Layout:
    """The tiles of a block around a place of the raster."""
    scales = [tile / axis.tile for axis in axes]
    xs, ys = (tuple(((a.middles - m) * s).tolist()) for a, m, s in zip(axes, middle, scales, strict=True))
    x, y = ((m + o) * s for m, o, s in zip(middle, offset, scales, strict=True))
    return Layout(xs, ys, tile, model.config, (x, y))


class _Coverage:
    """Which part of boxes has data.

    Args:
        valid: ``[h, w]``: the pixels of an image that have data.
        corner: Its upper left corner in pixels of the raster.
        scale: Its pixels for one of the raster, along x and y.
    """

    def __init__(self, valid: Array, corner: Array, scale: Array) -> None:
        self.total = np.zeros((valid.shape[0] + 1, valid.shape[1] + 1), np.int32)
        np.cumsum(valid, 0, np.int32, self.total[1:, 1:])
        np.cumsum(self.total, 1, out=self.total)
        self.corner, self.scale = corner, scale

    def shares(self, x: tuple[Array, Array], y: tuple[Array, Array]) -> Array:
        """``[rows, columns]`` for boxes from left to right edges ``x`` and from upper to lower ones ``y``."""
        left, right, top, low = (
            ((edge - corner) * scale).round().astype(int).clip(0, size - 1)
            for edges, corner, scale, size in zip((x, y), self.corner, self.scale, self.total.T.shape, strict=True)
            for edge in edges
        )
        upper, lower = (self.total[row][:, right] - self.total[row][:, left] for row in (top, low))
        found: Array = (lower - upper) / np.outer(low - top, right - left).clip(1)
        return found


def _square(
    dataset: DatasetReader, plan: IndexPlan, low: Array, scale: Array, side: int, steps: Array
) -> tuple[Array, Array]:
    """A square from a corner: pixels ``[3, side, side]``, repeated beyond the raster, and which are valid.

    What is not is ``MISSING``. It is read in strips, and kept in half precision: blocks are large. Strips end where
    pixels of raster and image do, so that only what is left at the border of the raster, the same for all blocks, is
    stretched to whole pixels.
    """
    edges = []
    strips = side, max(1, STRIP // int(steps[1]))  # columns and rows, in steps
    for begin, one, step, size, strip in zip(low.tolist(), scale, steps.tolist(), plan.size, strips, strict=True):
        first, last = max(begin, 0), min(begin + round(side / one), size)
        inner, outer = first + (begin - first) % step, last - (last - begin) % step
        edges.append([first, *range(inner, outer, strip * step), outer, last])
    places = [[round((edge - begin) * one) for edge in own] for own, begin, one in zip(edges, low, scale, strict=True)]
    pixels, valid = np.zeros((3, side, side), np.float16), np.zeros((side, side), bool)
    columns, rows = (
        [(*box, *place) for box, place in zip(itertools.pairwise(own), itertools.pairwise(at), strict=True)]
        for own, at in zip(edges, places, strict=True)
    )
    for (left, right, x0, x1), (top, below, y0, y1) in itertools.product(columns, rows):
        if x1 > x0 and y1 > y0:
            shape = y1 - y0, x1 - x0
            seen, known = read_window(dataset, plan.look, left, top, right - left, below - top, shape)
            seen[~known] = MISSING
            pixels[:, y0:y1, x0:x1], valid[y0:y1, x0:x1] = np.moveaxis(seen, -1, 0), known
    (left, *_, right), (top, *_, below) = places
    inside = pixels[:, top:below, left:right]
    border = ((top, side - below), (left, side - right))
    return (np.pad(inside, ((0, 0), *border), mode="edge") if np.any(border) else pixels), valid


def _by_tiles(model: MGCAP, engine: Engine, plan: IndexPlan, dataset: DatasetReader, chunk: int) -> Iterator[Part]:
    columns, rows = plan.axes(chunk)
    width, height = plan.tile
    together = images_together(model.config.rotations, model.mean.device.type)
    shares: dict[int, float] = {}

    def batches() -> Iterator[tuple[list[int], Tensor]]:
        indices: list[int] = []
        images: list[Tensor] = []
        scale = np.array([plan.shape[1] / width, plan.shape[0] / height])
        cells = itertools.product(range(len(rows.middles)), range(len(columns.middles)))
        for number, (row, column) in enumerate(cells):
            x, y = int(columns.tile_edges[0][column]), int(rows.tile_edges[0][row])
            pixels, valid = read_window(dataset, plan.look, x, y, width, height, plan.shape)
            shares_of = _Coverage(valid, np.array([x, y]), scale).shares
            share = float(shares_of(columns.one(column).cell_edges, rows.one(row).cell_edges)[0, 0])
            if min(share, float(valid.mean())) < plan.min_valid or not share:
                continue
            shares[number] = share
            indices.append(number)
            images.append(torch.from_numpy(pixels).permute(2, 0, 1))
            if len(images) == together:
                yield indices, torch.stack(images)
                indices, images = [], []
        if images:
            yield indices, torch.stack(images)

    with one_thread(), torch.inference_mode():
        for number, seen in walk(model, stream_features(model, prefetch(batches()), engine), winners=True):
            found = answer(model, seen)
            assert found.votes is not None
            described = Described(found.descriptors, found.votes.sum(1).argmax(-1))
            yield np.array([number]), described, np.array([shares[number]])
