"""Labels for the cells of a raster, from points, lines and polygons that somebody drew.

A point labels the cell below it, a polygon the cells that it covers by more than half, a line those that it runs
through. What is mixed or contradicts itself is counted and left out, never guessed.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.errors import DataError
from mgcap.geo.cellmap import CellMap
from mgcap.geo.cells import Place
from mgcap.geo.grid import Grid
from mgcap.geo.index import Index
from mgcap.geo.joining import Joined, join_lines, join_points, join_polygons
from mgcap.geo.sources import crs_of, transform_of
from mgcap.geo.vectors import Vectors
from mgcap.typing import Array

#: More classes are no classes, but names of places.
MOST_CLASSES = 1000
#: Spaces, also those that do not break a line.
_SPACES = re.compile("[ \N{NO-BREAK SPACE}]+")
#: Why cells have no label that have too many.
SEVERAL = "cells with labels of several classes"
#: What joins the parts of a geometry, by the types of shapely.
_JOINS = ((0, join_points), (1, join_lines), (3, join_polygons))


@dataclass(frozen=True)
class Labelled:
    """Cells of a raster that have a label.

    Attributes:
        cells: ``[n, 2]``: row and column of each, in order.
        targets: ``[n]``: the number of its class.
        classes: Names of the classes.
        left_out: How much has no label, by reason.
    """

    cells: Array
    targets: Array
    classes: tuple[str, ...]
    left_out: dict[str, int]

    @property
    def counts(self) -> dict[str, int]:
        """Cells of each class."""
        found = np.bincount(self.targets, minlength=len(self.classes))
        return dict(zip(self.classes, found.tolist(), strict=True))


def classes_in(vectors: Sequence[Vectors], field: str) -> tuple[str, ...]:
    """The names in a field, sorted.

    Raises:
        DataError: If there is none, or a field of something else.
    """
    found = sorted({own for each in vectors for name in each.columns[field] if (own := _class_name(name))})
    names = " and ".join(dict.fromkeys(own.name for own in vectors))
    if not found:
        raise DataError(f"no feature of {names} has a class in the field '{field}'")
    if len(found) > MOST_CLASSES:
        raise DataError(f"the field '{field}' of {names} has {len(found):,} different values; give that of the class")
    if bad := next((name for name in found if not name.isprintable()), None):
        raise DataError(f"{names} has a class with control characters in its name: {bad!r}")
    return tuple(found)


def _class_name(name: str | None) -> str:
    """A name of which there is one way of writing only: letters composed, spaces single; empty for none."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", name or "")).strip()


def cells_of_index(index: Index) -> CellMap:
    """The cells of an index as a map that has one class where there is data."""
    grid = index.plan.grid
    numbers = np.full((grid.rows, grid.columns), -1, np.int32)
    for place, cells in index.blocks():
        numbers[place] = np.where(cells.valid > 0, 0, -1)
    changed = datetime.datetime.fromtimestamp(index.plan.changed[0] / 1e9, datetime.UTC)
    place_of = Place(transform_of(index), crs_of(index), changed)
    return CellMap(Path(index.plan.raster), ("",), numbers, Grid(grid.width, grid.height, *index.plan.cell), place_of)


def label_cells(
    cells: CellMap, vectors: Vectors, field: str = "class", classes: Sequence[str] | None = None
) -> Labelled:
    """Label cells by what lies on them.

    Args:
        cells: Those with data have a number of 0 or more.
        vectors: In any coordinate system.
        field: With the class of each feature.
        classes: Their names, if there are more than those of this file.

    Raises:
        DataError: If the file has no class, or no way leads from its coordinates to those of the raster.
    """
    import shapely

    names = tuple(classes) if classes is not None else classes_in([vectors], field)
    numbers = {name: number for number, name in enumerate(names)}
    targets = np.array([numbers.get(_class_name(name), -1) for name in vectors.columns[field]])
    moved = vectors.into(cells.place.crs, f"the raster {cells.path.name}")
    shapes = moved.geometries.copy()
    empty = shapely.is_missing(shapes) | shapely.is_empty(shapes)
    left = {
        "features without a class": int((targets < 0).sum()),
        "features without a geometry": int((empty & (targets >= 0)).sum()),
    }
    shapes[empty | (targets < 0)] = None
    parts, source = _simple_parts(shapes)
    kinds = shapely.get_type_id(parts)
    found: list[Joined] = []
    for kind, join in _JOINS:
        own = (kinds == kind) | ((kinds == 2) & (kind == 1))  # a ring is a line
        if own.any():
            joined = join(cells, parts[own], source[own], targets)
            found.append(joined)
            left |= {why.replace("the map", "the raster"): count for why, count in joined.left_out.items()}
    return _settled(cells, found, names, left)


def _simple_parts(shapes: Array) -> tuple[Array, Array]:
    """Points, lines and polygons of geometries, also of nested collections, and of which geometry each is."""
    import shapely

    parts, source = shapely.get_parts(shapes, return_index=True)
    while (shapely.get_type_id(parts) > 3).any():
        parts, inner = shapely.get_parts(parts, return_index=True)
        source = source[inner]
    there = ~shapely.is_empty(parts)
    return parts[there], source[there]


def _settled(cells: CellMap, found: Sequence[Joined], names: tuple[str, ...], left: dict[str, int]) -> Labelled:
    """Each cell once; those with labels of several classes are left out."""
    columns = cells.grid.columns
    places = np.concatenate([own.cells for own in found]) if found else np.zeros((0, 2), np.int64)
    targets = np.concatenate([own.truth for own in found]) if found else np.zeros(0, np.int64)
    pairs = np.unique(np.stack((places[:, 0] * columns + places[:, 1], targets), -1).astype(np.int64), axis=0)
    numbers, first, times = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    one = times == 1
    left[SEVERAL] = int((~one).sum())
    rows, across = np.divmod(numbers[one], columns)
    reasons = {why: count for why, count in left.items() if count}
    return Labelled(np.stack((rows, across), -1), pairs[first[one], 1], names, reasons)


def none_labelled(vectors: Sequence[Vectors], rasters: Sequence[Any], found: Sequence[Labelled]) -> DataError:
    """Why there is nothing to learn from."""
    reasons: dict[str, int] = {}
    for own in found:
        for why, count in own.left_out.items():
            reasons[why] = reasons.get(why, 0) + count
    listed = "; ".join(f"{count} {why}" for why, count in reasons.items()) or "nothing lies on them"
    names = " and ".join(dict.fromkeys(own.name for own in vectors))
    return DataError(f"{names} labels no cell of {' and '.join(Path(str(r)).name for r in rasters)}: {listed}")
