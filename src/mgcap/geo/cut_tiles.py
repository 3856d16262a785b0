"""Labelled places of rasters as images in class folders, for tools that know no maps.

A raster is cut into tiles that do not overlap, and those that points, lines or polygons label are written, each with
where it lies.
"""

from __future__ import annotations

import csv
import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mgcap.data.decoding import max_pixels
from mgcap.data.imagery import Imagery
from mgcap.errors import RasterError, did_you_mean
from mgcap.geo.cellmap import CellMap
from mgcap.geo.cells import Place
from mgcap.geo.earth import pixel_metres, to_ground
from mgcap.geo.folder_names import folder_names
from mgcap.geo.grid import Grid
from mgcap.geo.labels import Labelled, classes_in, label_cells, none_labelled
from mgcap.geo.opening import file_state, open_raster, reading
from mgcap.geo.plan import COARSEST, tile_pixels
from mgcap.geo.raster import Look, choose_bands, choose_look, read_window
from mgcap.geo.tile_files import FORMATS, write_picture, write_raster
from mgcap.geo.vectors import Vectors, read_vectors
from mgcap.persistence.files import atomic_folder
from mgcap.runtime import Progress, silent
from mgcap.typing import Array

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

#: Side of a tile where pixels are about those of the model that comes with the package: its 256 pixels of 0.3 m.
METRES, PIXEL_METRES = "76.8m", 0.3
#: Side of a tile elsewhere.
PIXELS = "256px"


@dataclass(frozen=True)
class TileOptions:
    """What may be chosen of tiles.

    Attributes:
        tile: Side as ``80m`` or ``256px``; by default 76.8 m if pixels are 0.9 m or finer, else 256 pixels.
        form: ``tif`` keeps the values as they are, ``png`` and ``jpg`` have a world file beside each image.
        bands: By default red, green and blue; a GeoTIFF may have any.
        scale: Values that are black and white: ``auto`` leaves them as they are; ``percentiles`` and ``BLACK,WHITE``
            make bytes of them.
        min_valid: Part of a tile that must have data.
        allow_vrt: Let rasters read other files, see :func:`mgcap.geo.opening.open_raster`.
    """

    tile: str | None = None
    form: str = "tif"
    bands: tuple[int, ...] | None = None
    scale: str = "auto"
    min_valid: float = 0.5
    allow_vrt: bool = False

    def __post_init__(self) -> None:
        if self.form not in FORMATS:
            raise RasterError(f"`form` takes tif, png or jpg, not '{self.form}'{did_you_mean(self.form, FORMATS)}")


@dataclass(frozen=True)
class Cut:
    """What was written.

    Attributes:
        folder: Where.
        counts: Tiles of each class.
        left_out: How much has no tile, by reason, for each raster.
    """

    folder: Path
    counts: dict[str, int]
    left_out: dict[str, dict[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Sheet:
    """A raster and its labelled tiles."""

    raster: str | Path
    name: str
    grid: Grid
    labelled: Labelled


def cut_tiles(
    rasters: Sequence[str | Path],
    labels: str | Path,
    out: Path,
    field: str = "class",
    options: TileOptions | None = None,
    progress: Progress = silent,
) -> Cut:
    """Write the labelled tiles of rasters to a new folder, with a subfolder for each class and a list of all.

    Args:
        rasters: GeoTIFF, JPEG 2000, PNG, JPEG or WebP files.
        labels: Points, lines or polygons in a GeoPackage, Shapefile, GeoJSON, GeoParquet or CSV file.
        out: The folder, which must not be there, or be empty.
        field: Of the labels, with the class.
        options: How to cut; see there for what happens by default.
        progress: Where to report.

    Raises:
        DataError: With one sentence saying why nothing was written.
    """
    chosen = options or TileOptions()
    vectors = read_vectors(labels, [field])
    classes = classes_in([vectors], field)
    folders = folder_names(classes)
    sheets = _sheets(rasters, vectors, field, chosen)
    found = [sheet.labelled for sheet in sheets]
    total = sum(len(own.cells) for own in found)
    if not total:
        raise none_labelled([vectors], rasters, found)
    counts: Counter[str] = Counter()
    left_out = {str(sheet.raster): dict(sheet.labelled.left_out) for sheet in sheets}
    with atomic_folder(out) as folder, (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("path", "label", "x", "y", "raster"))
        with progress("Cutting tiles", total) as step:
            for sheet in sheets:
                for path, target, x, y in _written(sheet, folder, folders, chosen, left_out[str(sheet.raster)]):
                    if path:
                        rows.writerow((path, classes[target], repr(x), repr(y), sheet.raster))
                        counts[classes[target]] += 1
                    step(1)
        if not counts:
            share = f"{100 * chosen.min_valid:.0f} %"
            raise RasterError(f"none of the {total} labelled tiles has data in {share} of its pixels or more")
    return Cut(out, {name: counts[name] for name in classes}, left_out)


def _sheets(rasters: Sequence[str | Path], vectors: Vectors, field: str, chosen: TileOptions) -> list[_Sheet]:
    """What is labelled of each raster."""
    sheets = []
    classes = classes_in([vectors], field)
    for raster, name in zip(rasters, _distinct([Path(str(raster)).stem for raster in rasters]), strict=True):
        with _opened(raster, chosen) as dataset:
            _choose(dataset, chosen)
            grid = _grid(dataset, raster, chosen.tile)
            place = Place(dataset.transform, dataset.crs, _changed(raster))
        # which tiles have data is seen when they are read
        numbers = np.broadcast_to(np.int32(0), (grid.rows, grid.columns))
        cells = CellMap(Path(str(raster)), ("",), numbers, grid, place)
        sheets.append(_Sheet(raster, name, grid, _whole(grid, label_cells(cells, vectors, field, classes))))
    return sheets


@contextmanager
def _opened(raster: str | Path, chosen: TileOptions) -> Iterator[DatasetReader]:
    with open_raster(raster, chosen.allow_vrt) as dataset, reading(raster):
        yield dataset


def _choose(dataset: DatasetReader, chosen: TileOptions) -> tuple[Look, bool]:
    """How a raster is read, and whether its values are written as they are."""
    own = chosen.bands
    as_is = chosen.scale == "auto"
    if as_is and chosen.form == "tif":
        if own and not all(1 <= band <= dataset.count for band in own):
            raise RasterError(
                f"`bands` takes numbers from 1 to {dataset.count} for {dataset.name}, not {','.join(map(str, own))}"
            )
        return Look(own or choose_bands(dataset), 0.0, 255.0), True
    if not as_is:
        return choose_look(dataset, Imagery(), own, chosen.scale), False
    bands = choose_bands(dataset, own)
    if any((kind := dataset.dtypes[band - 1]) != "uint8" for band in bands):
        raise RasterError(
            f"{dataset.name} has {kind} pixels and {chosen.form} tiles have bytes; say what is black and white with "
            "`scale`, as `scale=0,3000`, or `scale=percentiles`"
        )
    return Look(bands, 0.0, 255.0), False


def _grid(dataset: DatasetReader, raster: str | Path, tile: str | None) -> Grid:
    """Tiles that do not overlap: each is one cell."""
    if tile is None:
        metres = pixel_metres(dataset)
        tile = METRES if metres is not None and max(metres) <= COARSEST * PIXEL_METRES else PIXELS
    grid = Grid.of(dataset.width, dataset.height, tile_pixels(dataset, Imagery(), tile)[0], 1)
    size = f"{grid.cell_width} x {grid.cell_height}"
    if grid.cell_width > grid.width or grid.cell_height > grid.height:
        raise RasterError(
            f"{raster} is {grid.width} x {grid.height} pixels, smaller than a tile of {size}; give a smaller `tile`"
        )
    if grid.cell_width * grid.cell_height > (limit := max_pixels()):
        raise RasterError(f"tiles would be {size} pixels, over the limit of {limit:,}; give a smaller `tile`")
    return grid


def _whole(grid: Grid, found: Labelled) -> Labelled:
    """The labelled cells that are whole tiles; at the edges of a raster some are not."""
    columns, rows = grid.width // grid.cell_width, grid.height // grid.cell_height
    kept = (found.cells < (rows, columns)).all(1)
    if kept.all():
        return found
    left = {**found.cells_out, "labelled places at the edge of the raster, where no whole tile is": int((~kept).sum())}
    return replace(found, cells=found.cells[kept], targets=found.targets[kept], cells_out=left)


def _written(
    sheet: _Sheet, folder: Path, folders: Sequence[str], chosen: TileOptions, left: dict[str, int]
) -> Iterator[tuple[str, int, float, float]]:
    """Write the tiles of a raster: for each its path, class, and the coordinates of its middle; no path if left out."""
    grid = sheet.grid
    width, height = grid.cell_width, grid.cell_height
    digits = len(str(max(grid.rows, grid.columns)))
    with _opened(sheet.raster, chosen) as dataset:
        look, as_is = _choose(dataset, chosen)
        for (row, column), target in zip(sheet.labelled.cells.tolist(), sheet.labelled.targets.tolist(), strict=True):
            left_edge, top = column * width, row * height
            pixels, valid = read_window(dataset, look, left_edge, top, width, height, (height, width))
            x, y = to_ground(dataset.transform, *np.array([left_edge + width / 2, top + height / 2])).tolist()
            if valid.mean() < chosen.min_valid:
                why = f"labelled tiles with data in less than {100 * chosen.min_valid:.0f} % of their pixels"
                left[why] = left.get(why, 0) + 1
                yield "", target, x, y
                continue
            name = f"{sheet.name}_{row:0{digits}}_{column:0{digits}}.{chosen.form}"
            path = folder / folders[target] / name
            path.parent.mkdir(exist_ok=True)
            if chosen.form == "tif":
                write_raster(
                    path, dataset, (left_edge, top, width, height), look.bands, None if as_is else _bytes(pixels)
                )
            else:
                write_picture(path, _bytes(pixels), dataset.transform, (left_edge, top), dataset.crs)
            yield f"{folders[target]}/{name}", target, x, y


def _bytes(pixels: Array) -> Array:
    """Pixels in [0, 1] as bytes."""
    found: Array = (pixels * 255).round().astype(np.uint8)
    return found


def _changed(raster: str | Path) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(file_state(raster)[0] / 1e9, datetime.UTC)


def _distinct(stems: Sequence[str]) -> list[str]:
    """Names of files that differ, for rasters whose own may not."""
    names: list[str] = []
    taken: set[str] = set()
    for (stem,) in map(folder_names, ([stem] for stem in stems)):
        name, number = stem, 1
        while name.casefold() in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name.casefold())
        names.append(name)
    return names
