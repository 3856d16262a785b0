"""What a project says of itself: its rasters, indexes and classes, in ``project.json``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mgcap.errors import DataError, missing
from mgcap.labelling.classes import LabelClass, add_class
from mgcap.names import human_names
from mgcap.persistence.files import write_json

FILE = "project.json"
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


def known_index(folder: Path, raster: Path) -> Path | None:
    """Where a project has the index of a raster; None if it has none."""
    if not is_project(folder):
        return None
    for own in read_about(folder).rasters:
        if (folder / own.raster).resolve() == raster.resolve():
            return folder / own.index
    return None


def add_raster(folder: Path, raster: Path, index: Path, allow_vrt: bool = False) -> None:
    """Let a raster be labelled in a project too; one that is there already may have moved.

    Raises:
        DataError: If another raster of the project has its name.
    """
    about = read_about(folder)
    new = ProjectRaster(raster=_seen(raster, folder), index=_seen(index, folder), allow_vrt=allow_vrt)
    others = [own for own in about.rasters if own.name != new.name]
    for own in about.rasters:
        there = (folder / own.raster).resolve()
        if own.name == new.name and there != raster.resolve() and there.exists():
            raise DataError(f"the project {folder} has another raster of the name {new.name}")
    if new not in about.rasters:
        rasters = tuple(new if own.name == new.name else own for own in about.rasters)
        rasters = rasters if len(others) < len(about.rasters) else (*about.rasters, new)
        write_json(folder / FILE, about.model_copy(update={"rasters": rasters}).model_dump(mode="json"))


def _seen(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
