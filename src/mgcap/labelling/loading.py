"""Labels from files into a project: vector files with a field, and the labels of a colleague's project."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mgcap.errors import DataError
from mgcap.geo.index import Index
from mgcap.geo.labels import Labelled, cells_of_index, classes_in, label_cells, left_out_of
from mgcap.geo.vectors import Vectors, read_vectors
from mgcap.labelling.classes import LabelClass, clean_name, final_number
from mgcap.labelling.colleague import OURS, check_stored, is_ours, suggested_cells
from mgcap.labelling.project import Project
from mgcap.labelling.store import Cell, Change
from mgcap.typing import Array

#: What says in a file of ours which labels settle conflicts.
_SETTLED = ("change", "resolves")
#: By how much the area of a label may differ from that of the cell that it is of.
TOLERANCE = 0.02


class _Said(NamedTuple):
    """What a file says of a cell."""

    cell: Cell
    name: str  #: of the class
    who: str
    hard: bool = False  #: whether it was suggested because it is hard
    change: int = 0  #: larger for what was said later
    resolves: bool = False  #: whether it settles a conflict


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


def load_labels(project: Project, path: str | Path, field: str | None, by: str, people: Collection[str] = ()) -> Loaded:
    """Take the labels of a file; what contradicts the labels of others becomes a conflict, and nothing is overwritten.

    Args:
        project: Takes them.
        path: A vector file, or the ``labels.gpkg`` of another project.
        field: That names the class of each feature; ``class`` by default.
        by: Who loads them, whose labels they are where the file does not say whose they are.
        people: Of the project: labels in the names of others than who loads them are marked as copies.

    Raises:
        DataError: If the file cannot be read, or has nothing for these rasters.
    """
    path = Path(path).expanduser()
    check_stored(path)
    ours = field in (None, "class") and is_ours(path)
    field = field or "class"
    vectors = read_vectors(path, OURS if ours else (field,), _SETTLED if ours else ())
    found: list[_Said] = []
    left_out: dict[str, int] = {}
    every: list[Labelled] = []
    names = () if ours else classes_in([vectors], field)
    hard = suggested_cells(path) if ours else set()
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
    found.sort(key=lambda own: own.change)  # who settled a conflict spoke last
    project.reload()
    new = _Taking(project, path.name, [own for own in people if own != by]).new(found)
    classes = _new_classes(project, dict.fromkeys(own.name for _, own in new))
    before = len(project.labels()[1])
    changed = project.take(_changes(project, new), by)
    left = {why: count for why, count in left_out.items() if count}
    return Loaded(changed, max(0, len(project.labels()[1]) - before), left, classes)


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
        change, resolves = (_whole(vectors.columns[own][feature]) if own in vectors.columns else 0 for own in _SETTLED)
        said = Cell(name, row, col), str(labels[feature]), people[feature] or vectors.name
        found.append(_Said(*said, _key(known) in hard, change or 0, bool(resolves)))
    outside = len(shapes) - len(inside) - int(others.sum())
    return found, {f"labels outside of {name}": outside, f"labels of other cells than those of {name}": other}


def _key(known: tuple[str | None, ...]) -> tuple[str, int, int] | None:
    """Raster, row and column as they are in the columns of a file."""
    raster, row, col = known[0], _whole(known[1]), _whole(known[2])
    return None if raster is None or row is None or col is None else (raster, row, col)


def _whole(text: str | None) -> int | None:
    """A whole number of a column of a file."""
    try:
        return int(float(text or ""))
    except (ValueError, OverflowError):
        return None


def _plain(name: str) -> str:
    """A name of a person as it is compared: what looks the same is the same."""
    letters = (letter for letter in unicodedata.normalize("NFKC", name) if unicodedata.category(letter) != "Cf")
    return " ".join("".join(letters).casefold().split())


def _numbers(classes: Sequence[LabelClass]) -> dict[str, int]:
    """Numbers of classes by name, also of those that are gone where no other has the name by now."""
    return {own.name.casefold(): own.number for own in sorted(classes, key=lambda own: not own.removed)}


class _Taking:
    """Finds what a file says that a project does not have yet.

    Nobody's label is overwritten: what the same person has said otherwise stands under the file's name, and so does
    what a file says in the name of somebody else. What was loaded before is not loaded again, whatever became of it
    since.

    Args:
        project: Takes the labels.
        name: Of the file.
        others: People of the project in whose names the file cannot speak.
    """

    def __init__(self, project: Project, name: str, others: Collection[str]) -> None:
        self.project, self.name = project, name
        self.others = {_plain(own) for own in others}
        self.there, self.before = project.store.labels(), project.store.loaded()

    def new(self, found: Sequence[_Said]) -> list[tuple[str, _Said]]:
        """What is not there, with whose labels it becomes; the last one of a cell may settle a conflict."""
        numbers = _numbers(self.project.about.classes)
        said: dict[Cell, set[int | None]] = {}
        for own in found:
            said.setdefault(own.cell, set()).add(self._final(numbers.get(own.name.casefold())))
        last = {own.cell: own for own in found}
        new = []
        for own in found:
            heard = {each.number for each in self.there.get(own.cell, ())}  # who settled it must have known all of it
            own = own._replace(resolves=own.resolves and own is last[own.cell] and heard <= said[own.cell])
            if whose := self._whose(own, numbers.get(own.name.casefold())):
                new.append((whose, own))
        return new

    def _final(self, number: int | None) -> int | None:
        return final_number(self.project.about.classes, number)

    def _whose(self, own: _Said, number: int | None) -> str | None:
        """Whose label it becomes; None if it is there."""
        copy, final = f"{own.who} ({self.name})", self._final(number)
        labels = {each.who: each for each in self.there.get(own.cell, ())}
        allowed = _plain(own.who) not in self.others
        for who in (own.who, copy):
            label = labels.get(who)
            if label is not None and label.number == final:
                return who if own.resolves and not label.resolves and (allowed or who == copy) else None
            loaded = self.before.get((own.cell, who))
            if loaded is not None and (loaded == number or self._final(loaded) == final is not None):
                return None
        return own.who if allowed and own.who not in labels else copy


def _changes(project: Project, new: Sequence[tuple[str, _Said]]) -> list[Change]:
    """Changes that write labels; the last one that a file has of a person and cell counts."""
    numbers = _numbers(project.about.classes)
    changes = {}
    for who, own in new:
        number = final_number(project.about.classes, numbers[own.name.casefold()])
        changes[own.cell, who] = Change(own.cell, who, number, own.resolves, own.hard)
    return list(changes.values())


def _new_classes(project: Project, names: Iterable[str]) -> tuple[str, ...]:
    """Let the project have classes of these names, unless they were merged into others; those that are new."""
    new = []
    for name in names:
        if final_number(project.about.classes, _numbers(project.about.classes).get(name.casefold())) is None:
            new.append(project.add_class(name).name)
    return tuple(new)
