"""Cells of a class map that touch and show the same, dissolved into one polygon each.

Polygons are made on the lattice of the cells, so that neighbours share every corner: there is neither gap nor overlap,
in whatever coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mgcap.geo.cells import TOGETHER, Place, cell_areas, cell_corners, rounded_areas, shown_probability
from mgcap.geo.earth import to_ground
from mgcap.geo.grid import Grid
from mgcap.geo.rings import joined_outlines
from mgcap.geo.votes import ClassMap
from mgcap.names import human_names
from mgcap.report.colours import class_colours
from mgcap.typing import Array


def patches(classes: Array) -> tuple[Array, int]:
    """Numbers ``[rows, columns]`` of the patches of cells that share edges and a class, from 1 on; and how many.

    Cells without data have 0. Patches are numbered class by class, and within each by their first cell.
    """
    from scipy.ndimage import label

    numbers, count = np.zeros(classes.shape, np.int32), 0
    for number in np.unique(classes[classes >= 0]):
        own, more = label(classes == number)
        numbers += np.where(own > 0, own + count, 0).astype(np.int32)
        count += more
    return numbers, count


def patch_tables(
    found: ClassMap, grid: Grid, place: Place, classes: Sequence[str], degrees: bool = False
) -> Iterator[tuple[Any, dict[str, Array]]]:
    """Polygons and columns of the patches, a bounded number of cells at once, or one patch.

    Args:
        found: What each cell shows.
        grid: The cells.
        place: Where they lie.
        classes: Labels of the classes.
        degrees: Geometries as GeoJSON has them, not polygons in the raster's coordinates.
    """
    numbers, count = patches(found.classes)
    cells = np.argwhere(numbers > 0)
    cells = cells[np.argsort(numbers[numbers > 0], kind="stable")]
    ends = np.cumsum(np.bincount(numbers[numbers > 0], minlength=count + 1)[1:])
    bends = _bends(numbers)
    first = 0
    while first < count:
        start = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, start + TOGETHER, "right")))
        some = cells[start : ends[last - 1]]
        parts = np.split(some, ends[first : last - 1] - start)
        shapes = (
            joined_outlines(place.crs, cell_corners(grid, place, some), np.array([len(part) for part in parts]))
            if degrees
            else _joined(parts, bends, grid, place)
        )
        yield shapes, _columns(found, grid, place, classes, parts)
        first = last


def _columns(
    found: ClassMap, grid: Grid, place: Place, classes: Sequence[str], parts: Sequence[Array]
) -> dict[str, Array]:
    rows, columns = np.concatenate(parts).T
    sizes = np.array([len(part) for part in parts])
    starts = np.cumsum(sizes) - sizes
    chosen = found.classes[rows, columns]
    probabilities = shown_probability(found.probabilities[rows, columns], chosen).astype(np.float64)
    areas = np.add.reduceat(cell_areas(grid, place, np.stack((rows, columns), 1)), starts)
    own = chosen[starts]
    colours, labels, names = (
        np.array(each, object) for each in (class_colours(classes), classes, human_names(classes))
    )
    return {
        "class": names[own],
        "label": labels[own],
        "cells": sizes.astype(np.int64),
        place.unit: rounded_areas(areas),
        "probability": (np.add.reduceat(probabilities, starts) / sizes).round(4),
        "colour": colours[own],
    }


def _bends(numbers: Array) -> Array:
    """Which corners ``[rows + 1, columns + 1]`` of cells are corners of a patch, or end an edge between two patches."""
    padded = np.pad(numbers, 1)
    left, right = padded[:, :-1], padded[:, 1:]
    level = (left[:-1] == right[:-1]) & (left[1:] == right[1:])
    upright = (left[:-1] == left[1:]) & (right[:-1] == right[1:])
    found: Array = ~(level | upright)
    return found


def _joined(parts: Sequence[Array], bends: Array, grid: Grid, place: Place) -> Array:
    """The polygons of patches, from their cells ``[n, 2]``, without corners that are none of any patch."""
    import shapely

    top, left = np.concatenate(parts).T.astype(np.float64)
    boxes = np.split(shapely.box(left, top, left + 1, top + 1), np.cumsum([len(part) for part in parts])[:-1])
    kind, points, (rings, polygons) = shapely.to_ragged_array([shapely.coverage_union_all(part) for part in boxes])
    column, row = points.astype(np.int64).T
    keep = bends[row, column]
    keep[rings[1:] - 1] = False  # rings are closed again below
    sizes = np.add.reduceat(keep, rings[:-1], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    x = np.minimum(column[keep] * grid.cell_width, grid.width).astype(np.float64)
    y = np.minimum(row[keep] * grid.cell_height, grid.height).astype(np.float64)
    ground = to_ground(place.transform, x, y)
    closed = np.insert(ground, starts + sizes, ground[starts], axis=0)
    found: Array = shapely.from_ragged_array(kind, closed, (np.concatenate(([0], np.cumsum(sizes + 1))), polygons))
    return found
