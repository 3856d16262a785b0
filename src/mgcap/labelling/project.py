"""A project: a folder with the labels of one or several rasters, the classes, and where rasters and indexes are.

``project.json`` has the classes, and paths that are relative to the folder, so that all can be moved together.
``labels.gpkg`` has the labels and their history, see :mod:`mgcap.labelling.store`. Both are changed under the lock of
the latter, so several processes may work in one folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mgcap.errors import DataError, missing
from mgcap.geo.index import Index, open_index
from mgcap.labelling.classes import (
    LabelClass,
    add_class,
    change_class,
    current,
    final_number,
    find_class,
    remove_class,
)
from mgcap.labelling.outlines import Outlines
from mgcap.labelling.store import Cell, Change, Label, Store, decided
from mgcap.persistence.files import write_json

_FILE, _LABELS = "project.json", "labels.gpkg"
#: The longest file that is read, in bytes.
_LONGEST = 8 << 20


class ProjectRaster(BaseModel):
    """A raster of a project.

    Attributes:
        raster: Its path as seen from the folder.
        index: That of its index.
        allow_vrt: Whether the raster may read other files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    raster: Annotated[str, Field(min_length=1)]
    index: Annotated[str, Field(min_length=1)]
    allow_vrt: bool = False

    @property
    def name(self) -> str:
        """By which labels name it."""
        return Path(self.raster).name


class About(BaseModel):
    """What ``project.json`` says.

    Attributes:
        format: Version of the layout, raised when projects come out otherwise.
        rasters: In the order in which they were added.
        classes: Also those that were removed, as the history names them.
        model: Whose descriptors the indexes have: its name, or its file as seen from the folder.
        prior: Whether the model's own classes and head are what labelling begins with.
        block: Side of the blocks of land of the cross-validation, in the unit of the first raster; None: 4 tiles.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    rasters: tuple[ProjectRaster, ...] = ()
    classes: tuple[LabelClass, ...] = ()
    model: str = "ucmerced"
    prior: bool = False
    block: Annotated[float, Field(gt=0)] | None = None


def is_project(folder: Path) -> bool:
    """Whether there is a project in a folder."""
    return (folder / _FILE).is_file()


def _read(folder: Path) -> About:
    path = folder / _FILE
    if not path.is_file():
        raise DataError(missing("project", folder) if not folder.exists() else f"{folder} is not a project of labels")
    try:
        if path.stat().st_size > _LONGEST:
            raise ValueError("it is too long")
        return About.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise DataError(f"{path} is damaged, or of another version of mgcap") from error


def create_project(folder: Path, model: str, prior: Sequence[str] = (), block: float | None = None) -> None:
    """A project without rasters; one that is there is left as it is.

    Args:
        folder: Its place.
        model: Whose descriptors are used.
        prior: The classes of the model, if labelling begins with them.
        block: Side of the blocks of land of the cross-validation.
    """
    from mgcap.names import human_names

    if is_project(folder):
        return
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} is there already, and is no project of labels; give another `project`")
    folder.mkdir(parents=True, exist_ok=True)
    classes: list[LabelClass] = []
    for label, name in zip(prior, human_names(list(prior)), strict=True):
        classes = add_class(classes, name, learnt=label)
    about = About(classes=tuple(classes), model=model, prior=bool(prior), block=block)
    write_json(folder / _FILE, about.model_dump(mode="json"))


def known_index(folder: Path, raster: Path) -> Path | None:
    """Where a project has the index of a raster; None if it has none."""
    if not is_project(folder):
        return None
    for own in _read(folder).rasters:
        if (folder / own.raster).resolve() == raster.resolve():
            return folder / own.index
    return None


def add_raster(folder: Path, raster: Path, index: Path, allow_vrt: bool = False) -> None:
    """Let a raster be labelled in a project too; one that is there already may have moved.

    Raises:
        DataError: If another raster of the project has its name.
    """
    about = _read(folder)
    new = ProjectRaster(raster=_seen(raster, folder), index=_seen(index, folder), allow_vrt=allow_vrt)
    others = [own for own in about.rasters if own.name != new.name]
    for own in about.rasters:
        there = (folder / own.raster).resolve()
        if own.name == new.name and there != raster.resolve() and there.exists():
            raise DataError(f"the project {folder} has another raster of the name {new.name}")
    if new not in about.rasters:
        rasters = tuple(new if own.name == new.name else own for own in about.rasters)
        rasters = rasters if len(others) < len(about.rasters) else (*about.rasters, new)
        write_json(folder / _FILE, about.model_copy(update={"rasters": rasters}).model_dump(mode="json"))


def _seen(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


class Project:
    """A project that is open.

    Args:
        folder: Its place.

    Raises:
        DataError: If there is none, or it is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser()
        self.about = _read(self.folder)
        if not self.about.rasters:
            raise DataError(f"the project {self.folder} has no raster; begin with mgcap label")
        self.indexes: list[Index] = [open_index(self.folder / own.index) for own in self.about.rasters]
        self.names = [own.name for own in self.about.rasters]
        self.outlines = Outlines(self.names, self.indexes)
        self.store = Store(self.folder / _LABELS, self.outlines, self.outlines.crs)
        with self.store.changing():  # a process may have been killed between the two files
            self.store.rename(self._class_names())

    def close(self) -> None:
        """Close its files."""
        self.store.close()

    # classes

    @property
    def classes(self) -> list[LabelClass]:
        """Those that labels can have."""
        return current(self.about.classes)

    def _class_names(self) -> dict[int, str]:
        return {own.number: own.name for own in self.about.classes}

    def _rewrite(self, make: Callable[[Sequence[LabelClass]], list[LabelClass]]) -> None:
        """Change the classes, within a transaction: nobody else changes them meanwhile."""
        about = _read(self.folder)
        self.about = about.model_copy(update={"classes": tuple(make(about.classes))})
        write_json(self.folder / _FILE, self.about.model_dump(mode="json"))
        self.store.rename(self._class_names())

    def reload(self) -> None:
        """See what another process has made of the classes."""
        self.about = self.about.model_copy(update={"classes": _read(self.folder).classes})

    def add_class(self, name: str, colour: str | None = None) -> LabelClass:
        """One more class."""
        with self.store.changing():
            self._rewrite(lambda classes: add_class(classes, name, colour))
        return self.about.classes[-1]

    def change_class(self, number: int, name: str | None = None, colour: str | None = None) -> None:
        """Another name or colour of a class."""
        with self.store.changing():
            self._rewrite(lambda classes: change_class(classes, number, name, colour))

    def remove_class(self, number: int, by: str, into: int | None = None, with_labels: bool = False) -> int:
        """Remove a class; its labels go to another, or away; how many these are.

        Args:
            number: Of the class.
            by: Who wants it.
            into: The class that takes its labels.
            with_labels: Whether labels may go away; the history keeps them.

        Raises:
            DataError: If it has labels that may not go away.
        """
        with self.store.changing():
            labels = self.store.of_class(number)
            if labels and into is None and not with_labels:
                raise DataError(
                    f"the class '{find_class(self.about.classes, number).name}' has {len(labels)} labels; "
                    "merge it into another class, or remove it with its labels"
                )
            self._rewrite(lambda classes: remove_class(classes, number, into))
            changes = [Change(cell, who, into) for cell, who in labels]
            return self.store.write(changes, by, "remove" if into is None else "merge", self._class_names())

    # labels

    def check_cells(self, cells: Iterable[Cell]) -> None:
        """See that there are such cells.

        Raises:
            DataError: If one is not there.
        """
        grids = {name: index.plan.grid for name, index in zip(self.names, self.indexes, strict=True)}
        for raster, row, col in cells:
            grid = grids.get(raster)
            if grid is None or not (0 <= row < grid.rows and 0 <= col < grid.columns):
                raise DataError(f"there is no cell in row {row + 1}, column {col + 1} of {raster}")

    def label(self, cells: Sequence[Cell], number: int | None, by: str, resolve: bool = False) -> int:
        """Give cells a class, or none; how many labels have changed.

        Args:
            cells: One or several, which are undone together.
            number: Of the class; None clears the labels of this person.
            by: Who says so.
            resolve: Whether this settles what others have said differently.
        """
        self.check_cells(cells)
        if number is not None:
            with self.store.changing():
                self.reload()  # another process may have removed it
                find_class(self.about.classes, number)
                changes = [Change(cell, by, number, resolve) for cell in dict.fromkeys(cells)]
                return self.store.write(changes, by, "resolve" if resolve else "label", self._class_names())
        return self.store.change([Change(cell, by, None) for cell in dict.fromkeys(cells)], by, "clear", {})

    def take(self, changes: Sequence[Change], by: str) -> int:
        """Write labels that come from a file; how many have changed."""
        self.check_cells({change.cell for change in changes})
        return self.store.change(changes, by, "load", self._class_names())

    def undo(self, by: str) -> list[Cell]:
        """Undo the last step of a person; the cells that are as before."""
        return self._step(by, "undo")

    def redo(self, by: str) -> list[Cell]:
        """Do again what a person undid last; the cells."""
        return self._step(by, "redo")

    def _step(self, by: str, kind: str) -> list[Cell]:
        with self.store.changing():
            found = self.store.step(by, kind == "undo")
            if not found:
                return []
            self.reload()
            changes = [change._replace(number=final_number(self.about.classes, change.number)) for change, _ in found]
            self.store.write(changes, by, kind, self._class_names(), found[0][1])
            return [change.cell for change in changes]

    def labels(self) -> tuple[dict[Cell, int], dict[Cell, list[Label]]]:
        """The class of each cell that all agree on, and the labels of those in conflict."""
        agreed, conflicts = {}, {}
        for cell, labels in self.store.labels().items():
            number = decided(labels)
            if number is None:
                conflicts[cell] = labels
            else:
                agreed[cell] = number
        return agreed, conflicts
