"""A class map as rasters, picture and table: cloud-optimised GeoTIFFs, a quick look with its legend, areas as CSV."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

from mgcap.geo.cells import Place, cell_areas
from mgcap.geo.grid import Grid
from mgcap.geo.opening import open_raster, reading
from mgcap.geo.plan import Plan
from mgcap.geo.raster import read_window
from mgcap.geo.votes import ClassMap
from mgcap.names import human_names
from mgcap.persistence.files import atomic_path, write_rows
from mgcap.report.colours import class_colours, rgb
from mgcap.report.sheets import INK, PAPER, fitted, font, picture, save_picture
from mgcap.typing import Array

if TYPE_CHECKING:
    from PIL.Image import Image


#: Longer side of the quick look's image in pixels.
QUICK_LOOK = 1600
#: A smaller image is enlarged to about this side.
SMALLEST_LOOK = 800
#: Height of the legend's letters, and the width of the longest name of a class, in pixels.
LETTERS, MOST_WORDS = 22, 420
#: How strongly classes cover the image below them.
COVER = 0.5


def write_class_raster(path: Path, found: ClassMap, grid: Grid, place: Place, classes: Sequence[str]) -> Path:
    """One pixel per cell: 0 is no data, 1 the first class; with colours and names.

    Returns:
        The file beside it that has the names, too.
    """
    colours = {0: (0, 0, 0, 0)} | {
        number: (*rgb(colour), 255) for number, colour in enumerate(class_colours(classes), 1)
    }
    values = (found.classes + 1)[None].astype(np.uint8 if len(classes) < 256 else np.uint16)
    tags = {f"CLASS_{number}": name for number, name in enumerate(human_names(classes), 1)}
    tags |= {"RASTER_SIZE": f"{grid.width} {grid.height}", "CELL_SIZE": f"{grid.cell_width} {grid.cell_height}"}
    _write_cog(path, values, grid, place, 0, ["class"], tags, colours)
    names = "".join(f"<Category>{escape(name)}</Category>" for name in ("no data", *human_names(classes)))
    beside = path.with_name(path.name + ".aux.xml")  # where GDAL and QGIS look for names
    with atomic_path(beside) as temporary:
        temporary.write_text(
            f'<PAMDataset><PAMRasterBand band="1"><CategoryNames>{names}</CategoryNames></PAMRasterBand>'
            "</PAMDataset>\n",
            encoding="utf-8",
        )
    return beside


def write_probability_raster(path: Path, found: ClassMap, grid: Grid, place: Place, classes: Sequence[str]) -> None:
    """First the probability of the class that the map shows, then that of each class."""
    values = np.concatenate((found.probability[..., None], found.probabilities), -1)
    values[~found.has_data] = np.nan
    values = np.moveaxis(values, -1, 0).round(4).astype(np.float32)
    names = human_names(classes)[: found.probabilities.shape[-1]]  # unknown has no probability
    _write_cog(path, values, grid, place, float("nan"), ["probability", *names], {}, None)


def write_distance_raster(path: Path, found: ClassMap, grid: Grid, place: Place) -> None:
    """How far each cell is from what the model was trained on; the tag LIMIT says where the unknown begins."""
    assert found.distance is not None
    tags = {"LIMIT": f"{found.limits.distance:.6g}"}
    _write_cog(path, found.distance[None].astype(np.float32), grid, place, float("nan"), ["distance"], tags, None)


def _write_cog(
    path: Path,
    values: Array,
    grid: Grid,
    place: Place,
    nodata: float,
    names: Sequence[str],
    tags: dict[str, str],
    colours: dict[int, tuple[int, int, int, int]] | None,
) -> None:
    import rasterio
    import rasterio.shutil
    from rasterio.transform import Affine

    t, width, height = place.transform, grid.cell_width, grid.cell_height
    profile = {
        "driver": "GTiff", "count": len(values), "height": grid.rows, "width": grid.columns, "dtype": values.dtype,
        "nodata": nodata, "crs": place.crs,
        "transform": Affine(t.a * width, t.b * height, t.c, t.d * width, t.e * height, t.f),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder, reading(path):
        plain = Path(folder) / "plain.tif"
        with rasterio.open(plain, "w", **profile) as dataset:
            dataset.write(values)
            dataset.update_tags(**tags)
            for number, name in enumerate(names, 1):
                dataset.set_band_description(number, name)
            if colours:
                dataset.write_colormap(1, colours)
        done = Path(folder) / "done.tif"
        options = {"compress": "DEFLATE", "resampling": "nearest", "overview_resampling": "nearest"}
        rasterio.shutil.copy(plain, done, driver="COG", **options)
        done.replace(path)


def write_quick_look(path: Path, plan: Plan, found: ClassMap, classes: Sequence[str], areas: Array) -> None:
    """The image with its classes over it, and a legend of those that occur."""
    save_picture(quick_look(plan, found, classes, areas), path)


def thinned(plan: Plan, side: int) -> tuple[Array, Array]:
    """The whole raster as RGB in [0, 1] with at most ``side`` pixels along its longer side, and which are valid."""
    with open_raster(plan.raster, plan.allow_vrt) as dataset, reading(plan.raster):
        shrink = max(1.0, max(dataset.width, dataset.height) / side)
        shape = max(1, round(dataset.height / shrink)), max(1, round(dataset.width / shrink))
        return read_window(dataset, plan.look, 0, 0, dataset.width, dataset.height, shape)


def class_image(found: ClassMap, grid: Grid, classes: Sequence[str], shape: tuple[int, int]) -> tuple[Array, Array]:
    """Colours ``[h, w, 3]`` in [0, 1] of the cells below each pixel, and which have data."""
    rows = (np.arange(shape[0]) * grid.height // shape[0]) // grid.cell_height
    columns = (np.arange(shape[1]) * grid.width // shape[1]) // grid.cell_width
    numbers = found.classes[np.ix_(rows, columns)]
    table = np.array([rgb(colour) for colour in class_colours(classes)], np.float32) / 255
    return table[numbers.clip(0)], numbers >= 0


def quick_look(plan: Plan, found: ClassMap, classes: Sequence[str], areas: Array) -> Image:
    """The picture of :func:`write_quick_look`."""
    image, valid = thinned(plan, QUICK_LOOK)
    colours, covered = class_image(found, plan.grid, classes, image.shape[:2])
    image[~valid] = 1.0
    mixed = np.where(covered[..., None], (1 - COVER) * image + COVER * colours, image)
    times = max(1, SMALLEST_LOOK // max(mixed.shape))  # cells of a small raster would be specks
    return _with_legend(picture(mixed.repeat(times, 0).repeat(times, 1)), classes, areas)


def _with_legend(look: Image, classes: Sequence[str], areas: Array) -> Image:
    """A picture, and on its right the classes that occur with their share of the area, the largest first."""
    from PIL import Image, ImageDraw

    share = areas / (float(areas.sum()) or 1.0)
    palette, names = class_colours(classes), human_names(classes)
    order = [int(k) for k in np.argsort(-areas, kind="stable") if areas[k] > 0]
    lines = [f"{fitted(names[k], MOST_WORDS, LETTERS)}  {100 * share[k]:.1f} %" for k in order]
    title, own = "class, part of the area", font(LETTERS)
    line, patch, gap = round(1.65 * LETTERS), 2 * LETTERS, LETTERS
    wide = 3 * gap + patch + math.ceil(max(own.getlength(text) for text in (title, *lines)))
    sheet = Image.new("RGB", (look.width + wide, max(look.height, (len(lines) + 2) * line)), PAPER)
    sheet.paste(look)
    draw, left = ImageDraw.Draw(sheet), look.width + gap
    draw.text((left, line // 2), title, INK, own, "lm")
    for row, (k, text) in enumerate(zip(order, lines, strict=True), 1):
        middle = row * line + line // 2
        draw.rectangle((left, middle - LETTERS // 2, left + patch, middle + LETTERS // 2), palette[k])
        draw.text((left + patch + gap // 2, middle), text, INK, own, "lm")
    return sheet


def class_areas(found: ClassMap, grid: Grid, place: Place, count: int) -> tuple[Array, Array]:
    """Area and number of cells of each class."""
    cells = np.argwhere(found.has_data)
    numbers = found.classes[tuple(cells.T)]
    areas = cell_areas(grid, place, cells)
    return np.bincount(numbers, areas, count), np.bincount(numbers, minlength=count)


def write_areas(path: Path, classes: Sequence[str], areas: Array, cells: Array, unit: str) -> None:
    """Area per class as CSV, the largest first, in a column of that name; see :attr:`Place.unit`."""
    total, names = float(areas.sum()), human_names(classes)
    write_rows(
        path,
        [
            {"class": names[k], "cells": int(cells[k]), unit: _amount(areas[k]), "share": f"{areas[k] / total:.6f}"}
            for k in np.argsort(-areas, kind="stable")
        ],
    )


def _amount(area: float) -> str:
    """Two digits, or more of what they would hide."""
    return f"{area:.6g}" if 0 < area < 1 else f"{area:.2f}"
