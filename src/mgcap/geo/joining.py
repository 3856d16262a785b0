"""What a map says where a reference says something: points take the cell below them, polygons the cells they cover."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mgcap.errors import DataError, RasterError
from mgcap.geo.cellmap import CellMap
from mgcap.geo.earth import to_ground
from mgcap.geo.vectors import Vectors
from mgcap.typing import Array

#: For the reasons why something is left out, one after the other, at which of them the way of each part ended.
Fates = dict[tuple[str, ...], Array]
#: Types of geometries in shapely.
_POINTS, _POLYGONS = (0, 4), (3, 6)
#: Why cells are left out that polygons contradict each other about.
SEVERAL_POLYGONS = "cells that polygons of several classes cover"


@dataclass(frozen=True)
class Joined:
    """Units of a comparison.

    Attributes:
        cells: ``[n, 2]``: row and column of the cell of each.
        truth: The class of each in the reference.
        source: The feature of each; -1 where there are several.
        cells_out: How many cells are not compared, by reason.
        fates: What became of each part that was drawn; where it is compared, the number of the reasons. The parts are
            the same for all maps, so that what one map has not another may.
        conflicts: ``[m, 2]``: cells of which polygons of different classes cover more than half.
    """

    cells: Array
    truth: Array
    source: Array
    cells_out: dict[str, int]
    fates: Fates = field(default_factory=dict)
    conflicts: Array = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    @property
    def left_out(self) -> dict[str, int]:
        """How much is not compared, by reason."""
        return count_fates(self.fates) | self.cells_out


def count_fates(fates: Fates) -> dict[str, int]:
    """How much was left out for each reason."""
    return {why: int((own == step).sum()) for reasons, own in fates.items() for step, why in enumerate(reasons)}


def are_points(vectors: Vectors) -> bool:
    """Whether a file has points, not polygons.

    Raises:
        DataError: If it has both, or neither.
    """
    import shapely

    kinds = set(shapely.get_type_id(vectors.geometries).tolist()) - {-1}
    if kinds and kinds <= set(_POINTS):
        return True
    if kinds and kinds <= set(_POLYGONS):
        return False
    if not kinds:
        raise DataError(f"no feature of {vectors.name} has a geometry")
    raise DataError(f"{vectors.name} must have points or polygons, not both or lines")


def join(cells: CellMap, vectors: Vectors, classes: Array) -> Joined:
    """Compare with a map.

    Args:
        cells: The map.
        vectors: In its coordinates.
        classes: The class of each feature, -1 for none.

    Raises:
        RasterError: If nothing lies on the map.
    """
    import shapely

    points = are_points(vectors)
    shapes = vectors.geometries.copy()
    shapes[classes < 0] = None
    left_out = {"features without a class": int((classes < 0).sum())}
    left_out["features without a geometry"] = int(((classes >= 0) & shapely.is_missing(vectors.geometries)).sum())
    parts, source = shapely.get_parts(shapes, return_index=True)
    found = (join_points if points else join_polygons)(cells, parts, source, classes)
    left_out |= found.left_out
    if not len(found.cells):
        raise RasterError(_why_nothing(cells, vectors, left_out, points))
    return Joined(found.cells, found.truth, found.source, {why: n for why, n in left_out.items() if n})


def _why_nothing(cells: CellMap, vectors: Vectors, left_out: dict[str, int], points: bool) -> str:
    import shapely

    if left_out["features without a class"] == len(vectors):
        return f"no feature of {vectors.name} has a class yet"
    if mixed := left_out.get("cells that no class covers by more than half", 0):
        return (
            f"no polygon of {vectors.name} covers a cell of {cells.path.name} by more than half ({mixed} are touched)"
        )
    if empty := left_out.get("points on cells without data" if points else "polygons' cells without data", 0):
        return f"{vectors.name} lies where {cells.path.name} has no data ({empty} {'points' if points else 'cells'})"
    grid, t = cells.grid, cells.place.transform
    corners = to_ground(t, *np.array([(x, y) for x in (0, grid.width) for y in (0, grid.height)], float).T)
    own = (*corners.min(0), *corners.max(0))
    there = shapely.get_coordinates(vectors.geometries)
    there = there[np.isfinite(there).all(1)]
    box = f"x {own[0]:.8g} to {own[2]:.8g}, y {own[1]:.8g} to {own[3]:.8g}"
    if not len(there):
        return f"nothing of {vectors.name} lies on {cells.path.name} ({box})"
    low, high = there.min(0), there.max(0)
    return (
        f"nothing of {vectors.name} (x {low[0]:.8g} to {high[0]:.8g}, y {low[1]:.8g} to {high[1]:.8g} in the map's "
        f"coordinates) lies on {cells.path.name} ({box})"
    )


def join_points(cells: CellMap, points: Array, source: Array, classes: Array) -> Joined:
    """The cells below points; ``source`` says of which feature each is, ``classes`` of which class a feature."""
    import shapely

    grid = cells.grid
    places = cells.to_pixels(np.stack((shapely.get_x(points), shapely.get_y(points)), -1))
    with np.errstate(invalid="ignore"):
        inside = ((places >= 0) & (places <= (grid.width, grid.height))).all(1)
    columns = (places[inside, 0] // grid.cell_width).astype(np.int64).clip(0, grid.columns - 1)
    rows = (places[inside, 1] // grid.cell_height).astype(np.int64).clip(0, grid.rows - 1)
    there, known = np.stack((rows, columns), -1), cells.numbers[rows, columns] >= 0
    origin = source[inside][known]
    fate = np.where(inside, 1, 0)
    fate[np.flatnonzero(inside)[known]] = 2
    fates: Fates = {("points outside of the map", "points on cells without data"): fate}
    return Joined(there[known], classes[origin], origin, {}, fates)


def join_polygons(cells: CellMap, polygons: Array, source: Array, classes: Array) -> Joined:
    """The cells that the polygons of one class cover by more than half."""
    import shapely

    shapes = shapely.transform(polygons, cells.to_pixels)
    finite = np.isfinite(shapely.bounds(shapes)).all(1)
    features, feature = np.unique(source, return_inverse=True)
    shapes, source = shapely.make_valid(shapes[finite]), source[finite]
    boxes, places = _boxes(cells, shapely.total_bounds(shapes))
    tree = shapely.STRtree(boxes)
    inside = np.unique(tree.query(shapes, predicate="intersects")[0])
    of_class, fate = classes[source], np.zeros(len(features), np.int64)
    fate[feature[finite][inside]] = 1
    numbers = np.unique(of_class)
    covered = np.zeros((len(boxes), len(numbers)), np.float32)
    for column, number in enumerate(numbers):  # polygons of one class are one, also where they overlap
        parts = shapely.get_parts(shapely.union_all(shapes[of_class == number]))
        shapely.prepare(parts)
        touching, whole = (tree.query(parts, predicate=how) for how in ("intersects", "contains"))
        covered[whole[1], column] = 1
        part, box = touching[:, covered[touching[1], column] < 1]
        share = shapely.area(shapely.intersection(parts[part], boxes[box])) / shapely.area(boxes[box])
        np.add.at(covered[:, column], box, share)
    touched, most = (covered > 1e-6).any(1), covered > 0.5
    known = cells.numbers[tuple(places.T)] >= 0
    one, several = (most.sum(1) == 1) & known, (most.sum(1) > 1) & known
    left = {
        "cells that no class covers by more than half": int((touched & known & ~most.any(1)).sum()),
        SEVERAL_POLYGONS: int(several.sum()),
        "polygons' cells without data": int((touched & ~known).sum()),
    }
    fates: Fates = {("polygons outside of the map",): fate}
    truth = numbers[most[one].argmax(1)]
    return Joined(places[one], truth, np.full(len(truth), -1), left, fates, places[several])


def join_lines(cells: CellMap, lines: Array, source: Array, classes: Array) -> Joined:
    """The cells that lines of a class run through for at least half of a cell's side; one cell may be there twice."""
    import shapely

    shapes = shapely.transform(lines, cells.to_pixels)
    finite = np.isfinite(shapely.bounds(shapes)).all(1)
    shapes, source = shapes[finite], source[finite]
    boxes, places = _boxes(cells, shapely.total_bounds(shapes))
    line, box = shapely.STRtree(boxes).query(shapes, predicate="intersects")
    length = shapely.length(shapely.intersection(shapes[line], boxes[box]))
    line, box, length = (own[length > 0] for own in (line, box, length))  # one that ends at a cell's edge is not in it
    known = cells.numbers[tuple(places[box].T)] >= 0
    numbers, of_class = np.unique(classes[source], return_inverse=True)
    pairs, pair = np.unique(box[known] * len(numbers) + of_class[line[known]], return_inverse=True)
    enough = np.bincount(pair, length[known], len(pairs)) >= min(cells.grid.cell_width, cells.grid.cell_height) / 2
    there, which = np.divmod(pairs[enough], len(numbers)) if len(numbers) else (pairs, pairs)
    fate = np.zeros(len(lines), np.int64)
    fate[np.flatnonzero(finite)[line]] = 1
    fates: Fates = {("lines outside of the map",): fate}
    left = {
        "cells that lines only touch": int((~enough).sum()),
        "lines' cells without data": int((~known).sum()),
    }
    return Joined(places[there], numbers[which], np.full(len(there), -1), left, fates)


def _boxes(cells: CellMap, bounds: Array) -> tuple[Array, Array]:
    """Cells within bounds as boxes in pixels, and their rows and columns."""
    import shapely

    grid = cells.grid
    if not np.isfinite(bounds).all():
        bounds = np.full(4, -1.0)
    size = np.array((grid.cell_width, grid.cell_height))
    first = np.clip(bounds[:2] // size, 0, (grid.columns, grid.rows)).astype(np.int64)
    last = np.clip(bounds[2:] // size + 1, 0, (grid.columns, grid.rows)).astype(np.int64)
    rows, columns = np.meshgrid(np.arange(first[1], last[1]), np.arange(first[0], last[0]), indexing="ij")
    places = np.stack((rows.ravel(), columns.ravel()), -1)
    left, top = places[:, 1] * grid.cell_width, places[:, 0] * grid.cell_height
    right, lower = np.minimum(left + grid.cell_width, grid.width), np.minimum(top + grid.cell_height, grid.height)
    return shapely.box(left, top, right, lower), places
