"""A project: a folder with the labels of one or several rasters, the classes, and where rasters and indexes are.

``project.json`` has the classes, and paths that are relative to the folder, so that all can be moved together.
``labels.gpkg`` has the labels and their history, see :mod:`mgcap.labelling.store`. Both are changed under the lock of
the latter, so several processes may work in one folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mgcap.errors import DataError
from mgcap.geo.index import Index, open_index
from mgcap.labelling.about import FILE, About, named_model, read_about, with_cells
from mgcap.labelling.classes import (
    LabelClass,
    add_class,
    change_class,
    clean_name,
    current,
    final_number,
    find_class,
    remove_class,
)
from mgcap.labelling.outlines import Outlines
from mgcap.labelling.store import Cell, Change, Label, Store, decided
from mgcap.persistence.files import write_json

_LABELS = "labels.gpkg"


class HasLabelsError(DataError):
    """A class is not removed, as labels would go away.

    Args:
        name: Of the class.
        labels: How many it has, of all people, also in conflict with others.
    """

    def __init__(self, name: str, labels: int) -> None:
        super().__init__(
            f"the class '{name}' has {labels} labels; merge it into another class, or remove it with its labels"
        )
        self.labels = labels


class Stepped(list[Cell]):
    """The cells of a step that was undone or done again.

    Args:
        cells: That have changed.
        left: How many have not, as their labels were not what the step left.
    """

    def __init__(self, cells: Iterable[Cell] = (), left: int = 0) -> None:
        super().__init__(cells)
        self.left = left


class Project:
    """A project that is open.

    Args:
        folder: Its place.
        allow_vrt: Whether its rasters may read other files, see :func:`mgcap.geo.opening.open_raster`.

    Raises:
        DataError: If there is none, or it is damaged, or an index has other cells than those that labels are for.
    """

    def __init__(self, folder: str | Path, allow_vrt: bool = False) -> None:
        self.allow_vrt = allow_vrt
        self.folder = Path(folder).expanduser()
        self.about = read_about(self.folder)
        if not self.about.rasters:
            raise DataError(f"the project {self.folder} has no raster; begin with mgcap label")
        self.indexes: list[Index] = [open_index(self.folder / own.index) for own in self.about.rasters]
        self.names = [own.name for own in self.about.rasters]
        with_cells(self.about, self.indexes)
        self.outlines = Outlines(self.names, self.indexes)
        self.store = Store(self.folder / _LABELS, self.outlines, self.outlines.crs)
        with self.store.changing():  # a process may have been killed between the two files
            self._remember_cells()
            self.store.rename(self._class_names())

    def _remember_cells(self) -> None:
        """Write down which cells labels are for, where a project of before does not say so."""
        about = read_about(self.folder)
        if len(about.rasters) == len(self.indexes):  # else another process has added one, which is not open here
            known = with_cells(about, self.indexes)
            if known != about:
                write_json(self.folder / FILE, known.model_dump(mode="json"))
            self.about = known

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
        about = read_about(self.folder)
        about = about.model_copy(update={"classes": tuple(make(about.classes))})
        write_json(self.folder / FILE, about.model_dump(mode="json"))
        self._take_classes(about)
        self.store.rename(self._class_names())

    def reload(self) -> None:
        """See what another process has made of the classes."""
        self._take_classes(read_about(self.folder))

    def _take_classes(self, about: About) -> None:
        """Its rasters stay those that are open, though another process may have added some."""
        self.about = self.about.model_copy(update={"classes": about.classes})

    def version(self) -> tuple[int, int, int, int]:
        """Another one after every change of labels or classes, by whichever process."""
        labels = self.store.version()  # first, as classes are written before the labels that have them
        about = (self.folder / FILE).stat()
        return labels, about.st_mtime_ns, about.st_ino, about.st_size

    @property
    def model(self) -> Path:
        """Whose descriptors the indexes have: its file, or its name."""
        return named_model(self.folder, self.about)

    def add_missing(self, names: Sequence[str]) -> None:
        """A class of each name that there is none of."""
        for name in names:
            if clean_name(name).casefold() not in {own.name.casefold() for own in self.classes}:
                self.add_class(name)

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
            HasLabelsError: If it has labels that may not go away.
        """
        with self.store.changing():
            labels = self.store.of_class(number)
            if labels and into is None and not with_labels:
                raise HasLabelsError(find_class(self.about.classes, number).name, len(labels))
            self._rewrite(lambda classes: remove_class(classes, number, into))
            changes = [Change(cell, own.who, into, own.resolves, since=own.change) for cell, own in labels]
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

    def label(
        self,
        cells: Sequence[Cell],
        number: int | None,
        by: str,
        resolve: bool = False,
        suggested: bool = False,
        once: str | None = None,
    ) -> int:
        """Give cells a class, or none; how many labels have changed.

        Args:
            cells: One or several, which are undone together.
            number: Of the class; None clears the labels of this person.
            by: Who says so.
            resolve: Whether this settles what others have said differently.
            suggested: Whether the cells were proposed because they are hard.
            once: A name; what is sent under the same name again is not written again.
        """
        self.check_cells(cells)
        kind = "clear" if number is None else "resolve" if resolve else "suggested" if suggested else "label"
        resolve = resolve and number is not None
        with self.store.changing():
            if once is not None and not self.store.is_new(f"{by}/{once}"):
                return 0
            if number is not None:
                self.reload()  # another process may have removed it
                find_class(self.about.classes, number)
            changes = [Change(cell, by, number, resolve) for cell in dict.fromkeys(cells)]
            return self.store.write(changes, by, kind, self._class_names())

    def take(self, changes: Sequence[Change], by: str) -> int:
        """Write labels that come from a file; how many have changed."""
        self.check_cells({change.cell for change in changes})
        return self.store.change(changes, by, "load", self._class_names())

    def undo(self, by: str) -> Stepped:
        """Undo the last step of a person; the cells that are as before.

        Labels that are not what the step left stay, as somebody has said something else since.
        """
        return self._step(by, "undo")

    def redo(self, by: str) -> Stepped:
        """Do again what a person undid last; the cells."""
        return self._step(by, "redo")

    def _step(self, by: str, kind: str) -> Stepped:
        with self.store.changing():
            self.reload()
            found = self.store.step(by, kind == "undo", lambda number: final_number(self.about.classes, number))
            if found is None:
                return Stepped()
            changes = [Change(Cell(*row[:3]), *row[3:6], since=row[6]) for row in found.rows]
            if not self.store.write(changes, by, kind, self._class_names(), found.step):
                self.store.mark(by, kind, found.step)
            return Stepped([change.cell for change in changes], found.left)

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
