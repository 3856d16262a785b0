"""Labels from files into a project: vector files with a field, and the labels of a colleague's project."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mgcap.errors import DataError
from mgcap.geo.index import Index
from mgcap.geo.labels import Labelled, cells_of_index, classes_in, label_cells, left_out_of
from mgcap.geo.vectors import Vectors, read_vectors
from mgcap.labelling.classes import clean_name
from mgcap.labelling.project import Project
from mgcap.labelling.store import SUGGESTED, Cell, Change
from mgcap.typing import Array

#: What a file of labels of ours has.
_OURS = ("class", "who", "raster", "row", "col")
#: By how much the area of a label may differ from that of the cell that it is of.
TOLERANCE = 0.02


class _Said(NamedTuple):
    """What a file says of a cell."""

    cell: Cell
    name: str  #: of the class
    who: str
    hard: bool = False  #: whether it was suggested because it is hard


class Loaded(NamedTuple):
    """What became of a file.

    Attributes:
        labels: That are new or other than before.
        conflicts: Cells of which the file says something else than others do.
        left_out: What was not taken, by reason.
        classes: Names of those that are new.
    """

    labels: int
    conflicts: int
    left_out: dict[str, int]
    classes: tuple[str, ...]


def load_labels(project: Project, path: str | Path, field: str | None, by: str) -> Loaded:
    """Take the labels of a file; what contradicts the labels of others becomes a conflict, and nothing is overwritten.

    Args:
        project: Takes them.
        path: A vector file, or the ``labels.gpkg`` of another project.
        field: That names the class of each feature; ``class`` by default.
        by: Who loads them, whose labels they are where the file does not say whose they are.

    Raises:
        DataError: If the file cannot be read, or has nothing for these rasters.
    """
    path = Path(path).expanduser()
    ours = field in (None, "class") and _is_ours(path)
    field = field or "class"
    vectors = read_vectors(path, _OURS if ours else (field,))
    found: list[_Said] = []
    left_out: dict[str, int] = {}
    every: list[Labelled] = []
    names = () if ours else classes_in([vectors], field)
    hard = _suggested(path) if ours else set()
    for name, index in zip(project.names, project.indexes, strict=True):
        if ours:
            said, left = _own_cells(index, vectors, name, _of_others(vectors, project.names, name), hard)
        else:
            labelled = label_cells(cells_of_index(index), vectors, field, names)
            every.append(labelled)
            left = {}
            pairs = zip(labelled.cells.tolist(), labelled.targets.tolist(), strict=True)
            said = [_Said(Cell(name, *cell), names[target], by) for cell, target in pairs]
        found += said
        for why, count in left.items():
            left_out[why] = left_out.get(why, 0) + count
    left_out |= left_out_of(every)
    if not found:
        reasons = "; ".join(f"{count} {why}" for why, count in left_out.items() if count) or "it lies elsewhere"
        raise DataError(f"{path.name} has no label for these rasters: {reasons}")
    found = [own._replace(name=clean_name(own.name)) for own in found]  # as the project writes it
    new = _new_classes(project, [own.name for own in found])
    before = len(project.labels()[1])
    changed = project.take(_without_contradiction(project, found, path.name), by)
    left = {why: count for why, count in left_out.items() if count}
    return Loaded(changed, max(0, len(project.labels()[1]) - before), left, new)


def _is_ours(path: Path) -> bool:
    """Whether a file is that of another project."""
    if path.suffix.lower() != ".gpkg" or not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            known = {row[1] for row in database.execute("PRAGMA table_info(labels)")}
            return set(_OURS) <= known and bool(database.execute("PRAGMA table_info(history)").fetchone())
    except sqlite3.Error:
        return False


def _suggested(path: Path) -> set[tuple[str, int, int]]:
    """The cells, by raster, row and column, that the project of a file suggested because they are hard."""
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        try:
            marks = ",".join("?" * len(SUGGESTED))
            query = f"SELECT DISTINCT raster, row, col FROM history WHERE kind IN ({marks})"  # noqa: S608 (question marks)
            return {(str(own[0]), int(own[1]), int(own[2])) for own in database.execute(query, SUGGESTED)}
        except (sqlite3.Error, TypeError, ValueError):  # a strange history; its labels may be right
            return set()


def _of_others(vectors: Vectors, names: Sequence[str], name: str) -> Array:
    """Which labels are of another raster of the project, though their cells may overlap those of this one."""
    others = set(names) - {name}
    return np.array([own in others for own in vectors.columns["raster"]], bool)


def _own_cells(
    index: Index, vectors: Vectors, name: str, others: Array, hard: set[tuple[str, int, int]]
) -> tuple[list[_Said], dict[str, int]]:
    """What labels of another project say of the cells of a raster whose outlines they have.

    Args:
        index: Of the raster.
        vectors: The labels.
        name: Of the raster.
        others: Which of these are of another raster.
        hard: Cells that were suggested because they are hard, as the file names them.
    """
    import shapely

    cells = cells_of_index(index)
    grid, shapes = cells.grid, vectors.into(cells.place.crs, f"the raster {name}").geometries
    middles = shapely.centroid(shapes)
    places = cells.to_pixels(np.stack((shapely.get_x(middles), shapely.get_y(middles)), -1))
    with np.errstate(invalid="ignore"):
        inside = np.flatnonzero(((places >= 0) & (places < (grid.width, grid.height))).all(1) & ~others)
    areas = shapely.area(shapely.transform(shapes[inside], cells.to_pixels))
    found, other = [], 0
    labels, people = vectors.columns["class"], vectors.columns["who"]
    for feature, area in zip(inside.tolist(), areas.tolist(), strict=True):
        col, row = (int(own // side) for own, side in zip(places[feature], index.plan.cell, strict=True))
        left, top, right, lower = grid.box(row, col)
        if labels[feature] is None or abs(area / ((right - left) * (lower - top)) - 1) > TOLERANCE:
            other += 1
            continue
        known = tuple(vectors.columns[own][feature] for own in ("raster", "row", "col"))
        suggested = _key(known) in hard
        found.append(_Said(Cell(name, row, col), str(labels[feature]), people[feature] or vectors.name, suggested))
    outside = len(shapes) - len(inside) - int(others.sum())
    return found, {f"labels outside of {name}": outside, f"labels of other cells than those of {name}": other}


def _key(known: tuple[str | None, ...]) -> tuple[str, int, int] | None:
    """Raster, row and column as they are in the columns of a file."""
    raster, row, col = known
    try:
        return None if raster is None else (raster, int(float(row or "")), int(float(col or "")))
    except ValueError:
        return None


def _new_classes(project: Project, names: Sequence[str]) -> tuple[str, ...]:
    """Let the project have classes of these names; those that are new."""
    known = {own.name.casefold() for own in project.classes}
    new = [name for name in dict.fromkeys(names) if name.casefold() not in known]
    for name in new:
        project.add_class(name)
    return tuple(new)


def _without_contradiction(project: Project, found: Sequence[_Said], name: str) -> list[Change]:
    """Changes that overwrite nobody's label: what the same person has said otherwise stands under the file's name.

    What was loaded before is not loaded again, whatever became of it since.
    """
    numbers = {own.name.casefold(): own.number for own in project.classes}
    there, before = project.store.labels(), project.store.loaded()
    changes: dict[tuple[Cell, str], Change] = {}
    for cell, label, who, hard in found:
        number, other = numbers[label.casefold()], f"{who} ({name})"
        if number in (before.get((cell, who)), before.get((cell, other))):
            continue
        own = next((each.number for each in there.get(cell, ()) if each.who == who), None)
        key = cell, who if own in (None, number) else other
        changes[key] = Change(cell, key[1], number, hard=hard)
    return list(changes.values())
