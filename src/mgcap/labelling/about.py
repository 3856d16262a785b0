"""What a project says of itself: its rasters, indexes and classes, in ``project.json``."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mgcap.errors import DataError, missing
from mgcap.geo.index import Index, open_index
from mgcap.labelling.classes import LabelClass, add_class
from mgcap.names import human_names
from mgcap.persistence.files import write_json

FILE = "project.json"
#: The longest file that is read, in bytes.
_LONGEST = 8 << 20
#: Options by which the cells of a raster are made, and read.
OPTIONS = ("cells", "tile", "bands", "scale", "min_valid")


class LabelledCells(BaseModel):
    """The cells that labels are for: a label names its cell by row and column, so another grid would move it.

    Attributes:
        size: Width and height of the raster in pixels.
        cell: Those of a cell.
        grid: Columns and rows.
        transform: From pixels to coordinates.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: tuple[int, int]
    cell: tuple[int, int]
    grid: tuple[int, int]
    transform: tuple[float, float, float, float, float, float]

    @classmethod
    def of(cls, index: Index) -> LabelledCells:
        """Those of an index."""
        plan = index.plan
        grid = plan.grid.columns, plan.grid.rows
        return cls(size=plan.size, cell=plan.cell, grid=grid, transform=index.about.of_pixels)

    def check(self, name: str, index: Index) -> None:
        """See that an index has these cells.

        Raises:
            DataError: If labels would be of other places.
        """
        own = LabelledCells.of(index)
        if self.size != own.size:
            labelled, there = (f"a raster of {_sides(each.size)}" for each in (self, own))
        elif (self.cell, self.grid) != (own.cell, own.grid):
            labelled, there = (f"cells of {_sides(each.cell)}" for each in (self, own))
        elif not all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in _pairs(self, own)):
            labelled, there = "a raster that lies elsewhere", "another place"
        else:
            return
        raise DataError(
            f"the labels of {name} are for {labelled}, but {Path(index.name).name} is for {there}; "
            "make the index with the raster, `cells` and `tile` of the first time, or begin another `project`"
        )


def _sides(sides: tuple[int, int]) -> str:
    return f"{sides[0]} pixels" if sides[0] == sides[1] else f"{sides[0]} x {sides[1]} pixels"


def _pairs(one: LabelledCells, other: LabelledCells) -> list[tuple[float, float]]:
    return list(zip(one.transform, other.transform, strict=True))


class ChosenOptions(BaseModel):
    """How the index of a raster was asked for, see :class:`mgcap.geo.plan.MapOptions`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cells: Annotated[int, Field(ge=1, le=1000)]
    tile: str | None = None
    bands: tuple[int, ...] | None = None
    scale: str = "auto"
    min_valid: float = 0.5


class ProjectRaster(BaseModel):
    """A raster of a project.

    Attributes:
        raster: Its path as seen from the folder.
        index: That of its index.
        allow_vrt: Whether it was added as one that is trusted. It is not heeded, as a project may come from a stranger:
            only who opens it can say that its rasters may read other files.
        labelled: The cells that labels are for.
        chosen: How its index was asked for, where that is known.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    raster: Annotated[str, Field(min_length=1)]
    index: Annotated[str, Field(min_length=1)]
    allow_vrt: bool = False
    labelled: LabelledCells | None = None
    chosen: ChosenOptions | None = None

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
    return (folder / FILE).is_file()


def read_about(folder: Path) -> About:
    """What the file of a project says.

    Raises:
        DataError: If there is none, or it is damaged.
    """
    path = folder / FILE
    if not path.is_file():
        raise DataError(missing("project", folder) if not folder.exists() else f"{folder} is not a project of labels")
    try:
        if path.stat().st_size > _LONGEST:
            raise ValueError("it is too long")
        return About.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise DataError(f"{path} is damaged, or of another version of mgcap") from error


def named_model(folder: Path, about: About) -> Path:
    """The model of a project: its file, or its name."""
    own = folder / about.model
    return own if own.is_file() else Path(about.model)


def create_project(folder: Path, model: str, prior: Sequence[str] = (), block: float | None = None) -> None:
    """A project without rasters; one that is there is left as it is.

    Args:
        folder: Its place.
        model: Whose descriptors are used.
        prior: The classes of the model, if labelling begins with them.
        block: Side of the blocks of land of the cross-validation.
    """
    if is_project(folder):
        return
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} is there already, and is no project of labels; give another `project`")
    folder.mkdir(parents=True, exist_ok=True)
    classes: list[LabelClass] = []
    for label, name in zip(prior, human_names(list(prior)), strict=True):
        classes = add_class(classes, name, learnt=label)
    about = About(classes=tuple(classes), model=model, prior=bool(prior), block=block)
    write_json(folder / FILE, about.model_dump(mode="json"))


def known_raster(folder: Path, raster: Path) -> ProjectRaster | None:
    """What a project says of a raster; None if it does not have it."""
    if not is_project(folder):
        return None
    for own in read_about(folder).rasters:
        if (folder / own.raster).resolve() == raster.resolve():
            return own
    return None


def add_raster(
    folder: Path, raster: Path, index: Path, allow_vrt: bool = False, chosen: dict[str, Any] | None = None
) -> None:
    """Let a raster be labelled in a project too; one that is there already may have moved.

    Args:
        folder: Of the project.
        raster: Its file.
        index: Of it.
        allow_vrt: Whether the raster may read other files.
        chosen: The :data:`OPTIONS` that the index was asked for with, to be taken again the next time.

    Raises:
        DataError: If another raster of the project has its name, or its labels are for other cells.
    """
    about, found = read_about(folder), open_index(index)
    new = ProjectRaster(
        raster=_seen(raster, folder),
        index=_seen(index, folder),
        allow_vrt=allow_vrt,
        labelled=LabelledCells.of(found),
        chosen=None if chosen is None else ChosenOptions.model_validate(chosen),
    )
    for own in about.rasters:
        there = (folder / own.raster).resolve()
        if own.name == new.name and there != raster.resolve() and there.exists():
            raise DataError(f"the project {folder} has another raster of the name {new.name}")
        if own.name == new.name and own.labelled is not None:
            own.labelled.check(own.name, found)
    if new not in about.rasters:
        known = any(own.name == new.name for own in about.rasters)
        rasters = tuple(new if own.name == new.name else own for own in about.rasters)
        rasters = rasters if known else (*about.rasters, new)
        write_json(folder / FILE, about.model_copy(update={"rasters": rasters}).model_dump(mode="json"))


def with_cells(about: About, indexes: Sequence[Index]) -> About:
    """The same, where the cells of every raster are known; projects of before did not say them.

    Raises:
        DataError: If an index has other cells than those that labels are for.
    """
    rasters = []
    for own, index in zip(about.rasters, indexes, strict=True):
        if own.labelled is not None:
            own.labelled.check(own.name, index)
        rasters.append(own if own.labelled else own.model_copy(update={"labelled": LabelledCells.of(index)}))
    return about.model_copy(update={"rasters": tuple(rasters)})


def _seen(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
