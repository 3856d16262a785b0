"""What the cells of an index lie on: coordinates, outlines, and pixels of the raster where it is still there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.data.decoding import max_pixels
from mgcap.errors import RasterError
from mgcap.geo.earth import to_ground
from mgcap.geo.index import Index
from mgcap.geo.nearest import tile_middles
from mgcap.geo.opening import crs_of_words, open_raster, reading
from mgcap.geo.raster import read_window
from mgcap.typing import Array


def crs_of(index: Index) -> Any:
    """The coordinate system of an index; None if it has none."""
    return crs_of_words(index.about.crs, index.name)


def transform_of(index: Index) -> Any:
    """From pixels of the raster of an index to coordinates."""
    from rasterio.transform import Affine

    return Affine(*index.about.of_pixels)


def coordinates_of(index: Index, rows: Array, columns: Array) -> Array:
    """The middles ``[n, 2]`` of the tiles of cells."""
    return to_ground(transform_of(index), *tile_middles(index, rows, columns))


def outlines_of(index: Index, rows: Array, columns: Array) -> Array:
    """The corners ``[n, 4, 2]`` of the tiles of cells."""
    x, y = tile_middles(index, rows, columns)
    width, height = index.plan.tile
    steps = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
    return to_ground(transform_of(index), x[:, None] + steps[:, 0] * width, y[:, None] + steps[:, 1] * height)


def angles_of(index: Index, rows: Array, columns: Array) -> Array:
    """The canonical angles of cells in degrees."""
    known = np.array(index.about.angles, np.float64)
    try:
        numbers = index.group["rotations"].vindex[rows, columns]  # type: ignore[union-attr]
    except Exception as error:  # as for Index.read
        raise RasterError(f"a part of the index {index.name} is damaged; make it again with mgcap index") from error
    angles: Array = known[np.asarray(numbers).clip(max=len(known) - 1)]
    return angles


def located(indexes: Sequence[Index], at: tuple[float, float], crs: str | None) -> tuple[int, int, int]:
    """The first index that has a place, with row and column of the cell.

    Args:
        indexes: To look at.
        at: The place (x, y).
        crs: Of that, if it is not that of the rasters.
    """
    if not all(map(math.isfinite, at)):
        raise RasterError("`at` takes two finite numbers, x first")
    if crs is None and len({index.about.crs for index in indexes}) > 1:
        raise RasterError("the rasters have several coordinate systems; say by `crs` which one `at` is in")
    for number, index in enumerate(indexes):
        x, y = at if crs is None else _moved(index, at, crs)
        column, row = _cell(index, x, y)
        if 0 <= row < index.plan.grid.rows and 0 <= column < index.plan.grid.columns:
            return number, row, column
    names = indexes[0].name if len(indexes) == 1 else f"any of the {len(indexes)} indexes"
    hint = "" if crs else "; for longitude and latitude give `crs=EPSG:4326`"
    raise RasterError(f"{at[0]:.10g},{at[1]:.10g} does not lie in {names}{hint}")


def _cell(index: Index, x: float, y: float) -> tuple[int, int]:
    """Column and row of the cell at a place, which may lie beyond the index."""
    a, b, c, d, e, f = index.about.transform
    try:
        found = np.linalg.solve([[a, b], [d, e]], [x - c, y - f])
    except np.linalg.LinAlgError:
        raise RasterError(f"{index.name} does not say where its cells lie") from None
    column, row = (math.floor(own) if math.isfinite(own) else -1 for own in found)
    return column, row


def _moved(index: Index, at: tuple[float, float], crs: str) -> tuple[float, float]:
    """A place in the coordinates of an index."""
    from pyproj import CRS, Transformer
    from pyproj.exceptions import CRSError, ProjError

    own = crs_of(index)
    if own is None:
        raise RasterError(f"{index.name} has no coordinate system, so `at` is in its pixels and `crs` cannot be given")
    try:
        given = CRS.from_user_input(crs)
    except CRSError:
        raise RasterError(f"`crs` takes a coordinate system as EPSG:4326, not '{crs}'") from None
    try:
        x, y = Transformer.from_crs(given, own.to_wkt(), always_xy=True).transform(*at)
    except ProjError as error:
        raise RasterError(f"`crs`: {crs} does not lead to the coordinate system of {index.name}") from error
    return float(x), float(y)


def cut_tile(index: Index, row: int, column: int, side: int | None = None) -> Array | None:
    """The pixels ``[h, w, 3]`` in [0, 1] of the tile of a cell; None if the raster is not there, or is another.

    An index may say anything, so only a plain file is opened that is as long as the raster was: nothing that it names
    in turn, and no address.

    Args:
        index: Of the raster.
        row: Of the cell.
        column: Of the cell.
        side: Of the pixels; by default as the model sees them.
    """
    plan = index.plan
    width, height = plan.tile
    if side is None and math.prod(plan.shape) > max_pixels():
        return None
    shape = plan.shape if side is None else (side, max(1, round(side * width / height)))
    (x,), (y,) = tile_middles(index, np.array([row]), np.array([column]))
    folder = Path(index.name).parent
    for path in (folder / plan.raster, folder / Path(plan.raster).name):  # the first may be anywhere
        try:
            if not path.is_file() or path.stat().st_size != plan.changed[1]:
                continue
            with open_raster(path) as dataset, reading(path):
                if (dataset.width, dataset.height) != plan.size or max(plan.bands) > dataset.count:
                    continue
                left, top = int(x - width / 2), int(y - height / 2)
                return read_window(dataset, plan.look, left, top, width, height, shape)[0]
        except (OSError, RasterError, ValueError, IndexError):
            continue
    return None
