"""Labels for the cells of a raster, from points, lines and polygons that somebody drew.

A point labels the cell below it, a polygon the cells that it covers by more than half, a line those that it runs
through. What is mixed is counted and left out, never guessed, and so is each cell about which any two labels differ.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mgcap.errors import DataError
from mgcap.geo.cellmap import CellMap
from mgcap.geo.cells import Place
from mgcap.geo.grid import Grid
from mgcap.geo.index import Index
from mgcap.geo.joining import SEVERAL_POLYGONS, Fates, Joined, count_fates, join_lines, join_points, join_polygons
from mgcap.geo.sources import crs_of, transform_of
from mgcap.geo.vectors import Vectors
from mgcap.typing import Array

#: More classes are no classes, but names of places.
MOST_CLASSES = 1000
#: Spaces, also those that do not break a line.
_SPACES = re.compile("[ \N{NO-BREAK SPACE}]+")
#: Why cells have no label that have too many.
SEVERAL = "cells with labels of several classes"
#: From row and column to one number.
_FLAT = np.array((1 << 32, 1))
#: What joins the parts of a geometry, by the types of shapely.
_JOINS = ((0, join_points), (1, join_lines), (3, join_polygons))


@dataclass(frozen=True)
class Labelled:
    """Cells of a raster that have a label.

    Attributes:
        cells: ``[n, 2]``: row and column of each, in order.
        targets: ``[n]``: the number of its class.
        classes: Names of the classes.
        cells_out: How many cells have no label, by reason.
        fates: How far what was drawn came, see :class:`mgcap.geo.joining.Joined`.
        conflicts: ``[m, 2]``: cells without a label, as they have several of different classes.
    """

    cells: Array
    targets: Array
    classes: tuple[str, ...]
    cells_out: dict[str, int]
    fates: Fates = field(default_factory=dict)
    conflicts: Array = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    @property
    def left_out(self) -> dict[str, int]:
        """How much has no label, by reason."""
        return left_out_of([self])

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


def cells_of_index(index: Index, wherever: bool = False) -> CellMap:
    """The cells of an index as a map that has one class where there is data, or wherever there may be some."""
    grid = index.plan.grid
    numbers = np.full((grid.rows, grid.columns), 0 if wherever else -1, np.int32)
    for place, cells in () if wherever else index.blocks():
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
    fate = np.where(targets < 0, 0, np.where(empty, 1, 2))
    fates: Fates = {("features without a class", "features without a geometry"): fate}
    shapes[empty | (targets < 0)] = None
    parts, source = _simple_parts(shapes)
    kinds = shapely.get_type_id(parts)
    found: list[Joined] = []
    left: dict[str, int] = {}
    for kind, join in _JOINS:
        own = (kinds == kind) | ((kinds == 2) & (kind == 1))  # a ring is a line
        if own.any():
            joined = join(cells, parts[own], source[own], targets)
            found.append(joined)
            left |= joined.cells_out
            fates |= {tuple(w.replace("the map", "the raster") for w in why): at for why, at in joined.fates.items()}
    left.pop(SEVERAL_POLYGONS, None)  # counted with the others that have several classes
    settled, classes_of, conflicts = _settled(found, [own.truth for own in found])
    return Labelled(settled, classes_of, names, left, fates, conflicts)


def _simple_parts(shapes: Array) -> tuple[Array, Array]:
    """Points, lines and polygons of geometries, also of nested collections, and of which geometry each is."""
    import shapely

    parts, source = shapely.get_parts(shapes, return_index=True)
    while (shapely.get_type_id(parts) > 3).any():
        parts, inner = shapely.get_parts(parts, return_index=True)
        source = source[inner]
    there = ~shapely.is_empty(parts)
    return parts[there], source[there]


def together(every: Sequence[Labelled]) -> Labelled:
    """Labels of several files on the same raster; cells to which they give different classes are left out."""
    cells, targets, conflicts = _settled(every, [own.targets for own in every])
    fates: Fates = {}
    for own in every:
        for why, fate in own.fates.items():
            fates[why] = np.concatenate((fates[why], fate)) if why in fates else fate
    return Labelled(cells, targets, every[0].classes, summed([own.cells_out for own in every]), fates, conflicts)


def _settled(every: Sequence[Joined | Labelled], targets: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Each cell once with its class, and those that have several, or had before, whatever else is said of them."""
    none = np.zeros((0, 2), np.int64)
    places = np.concatenate([none, *(own.cells for own in every)]) @ _FLAT
    contested = np.concatenate([none, *(own.conflicts for own in every)]) @ _FLAT
    classes = np.concatenate([none[:, 0], *targets]).astype(np.int64)
    numbers, which = np.unique(places, return_inverse=True)
    low, high = np.full(len(numbers), 1 << 30), np.full(len(numbers), -1)
    np.minimum.at(low, which, classes)
    np.maximum.at(high, which, classes)
    one = (low == high) & ~np.isin(numbers, contested)
    conflicts = np.union1d(numbers[low != high], contested)
    return np.stack(np.divmod(numbers[one], _FLAT[0]), -1), low[one], np.stack(np.divmod(conflicts, _FLAT[0]), -1)


def left_out_of(every: Sequence[Labelled]) -> dict[str, int]:
    """How much of the same labels has no cell on any of several rasters, by reason; each counts once."""
    fates: Fates = {}
    for own in every:
        for why, fate in own.fates.items():
            fates[why] = np.maximum(fates.get(why, 0), fate)
    contested = {SEVERAL: sum(len(own.conflicts) for own in every)}
    counts = summed([count_fates(fates), *(own.cells_out for own in every), contested])
    return {why: count for why, count in counts.items() if count}


def summed(parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Counts by name of several, together."""
    found: dict[str, int] = {}
    for own in parts:
        for name, count in own.items():
            found[name] = found.get(name, 0) + count
    return found


def none_labelled(vectors: Sequence[Vectors], rasters: Sequence[Any], found: Sequence[Labelled]) -> DataError:
    """Why there is nothing to learn from."""
    listed = "; ".join(f"{count} {why}" for why, count in left_out_of(found).items()) or "nothing lies on them"
    names = " and ".join(dict.fromkeys(own.name for own in vectors))
    return DataError(f"{names} labels no cell of {' and '.join(Path(str(r)).name for r in rasters)}: {listed}")
