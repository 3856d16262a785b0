"""A project made ready to be labelled: its rasters indexed, and where it is new, what it begins with."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgcap.errors import DataError
from mgcap.geo.index import Index, open_index
from mgcap.geo.indexing import fill_index
from mgcap.geo.opening import is_virtual
from mgcap.geo.plan import MapOptions
from mgcap.geo.work import Workers, compute_here
from mgcap.inference.fingerprints import descriptor_fingerprint
from mgcap.labelling.about import (
    OPTIONS,
    About,
    ProjectRaster,
    add_raster,
    create_project,
    is_project,
    known_raster,
    named_model,
    read_about,
)
from mgcap.labelling.checks import check_block, check_together
from mgcap.labelling.opened import open_for
from mgcap.persistence.shipped import DEFAULT_MODEL, find_model
from mgcap.runtime import Progress, silent

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


@dataclass(frozen=True)
class Beginning:
    """What a new project begins with.

    Attributes:
        model: Whose network describes the rasters; by default that of the project, or the shipped one.
        from_model: Begin with the classes and the map of the model.
        block: Side of the blocks of land that are held out together, in metres; by default four tiles.
    """

    model: str | Path | None = None
    from_model: bool = False
    block: float | None = None


def default_folder(rasters: Sequence[str | Path]) -> Path:
    """Where the project of some rasters is, if nothing else is said."""
    return Path(f"{Path(rasters[0]).stem}.labels")


def base_model(
    folder: Path,
    given: str | Path | None,
    load: Callable[[Path], SceneClassifier],
    progress: Progress = silent,
) -> SceneClassifier:
    """The model that describes the rasters of a project; one that is there is continued with that which it names.

    Args:
        folder: Of the project, which may be new.
        given: The model that is asked for, if one is.
        load: Loads a model.
        progress: Where to say that another is taken.

    Raises:
        DataError: If a project that is there was begun with other descriptors.
    """
    if not is_project(folder):
        return load(Path(given or DEFAULT_MODEL))
    named = named_model(folder, read_about(folder))
    own = load(named)
    if given is not None and find_model(given).resolve() != find_model(named).resolve():
        if descriptor_fingerprint(load(Path(given)).model_) != descriptor_fingerprint(own.model_):
            raise DataError(
                f"the project {folder} was begun with the model {named.stem}, and {Path(given).stem} describes rasters "
                "otherwise; leave out `model`, or begin another `project`"
            )
        progress.say(f"{folder} goes on with its own model, {named.stem}, whose descriptors are the same")
    return own


def prepare_project(
    classifier: SceneClassifier,
    rasters: Sequence[str | Path],
    folder: Path,
    options: Mapping[str, Any],
    beginning: Beginning,
    indexes: Sequence[Path] = (),
    workers: Workers | None = None,
    progress: Progress = silent,
) -> None:
    """Make or complete the indexes of rasters, and let a project have them; one that is there goes on as it began.

    Args:
        classifier: The model, loaded.
        rasters: Files of this machine.
        folder: Of the project.
        options: Those that were given, of :class:`mgcap.geo.plan.MapOptions`; the others are as the first time.
        beginning: What a new project begins with.
        indexes: Of the rasters, in their order; by default those of the first time, or here, as ``scene.zarr``.
        workers: Compute the indexes; by default this process.
        progress: Where to report.

    Raises:
        DataError: If a raster is no file of this machine, or the labels are for other cells.
        RasterError: If some rasters lie on the Earth, and others have no place; or blocks are smaller than a cell.
    """
    if indexes and len(indexes) != len(rasters):
        raise DataError(f"`index` is needed for each of the {len(rasters)} rasters, in their order")
    if any(is_virtual(raster) for raster in rasters):
        raise DataError("rasters to label are files of this machine; copy what lies elsewhere")
    if len({Path(raster).stem for raster in rasters}) < len(rasters):
        raise DataError("two rasters have the same name; labels would not know them apart")
    known = [known_raster(folder, Path(raster)) for raster in rasters]
    targets = indexes or [
        folder / own.index if own else Path(f"{Path(raster).stem}.zarr")
        for own, raster in zip(known, rasters, strict=True)
    ]
    chosen = [MapOptions(**chosen_again(own, options)) for own in known]
    check_together(rasters, bool(options.get("allow_vrt", False)), _others(folder, rasters))
    opened = [
        open_for(classifier, raster, folder, dataclasses.replace(own, index=target), progress)
        for raster, target, own in zip(rasters, targets, chosen, strict=True)
    ]
    if is_project(folder):
        _say_kept(read_about(folder), beginning, progress)
    elif beginning.block is not None:
        check_block(opened[0].index, beginning.block, beginning.block)
    for found in opened:
        fill_index(found.index, found.planned, workers or compute_here(classifier), progress)
    prior = [str(own) for own in classifier.classes_] if beginning.from_model else ()
    create_project(folder, _seen_from(folder, beginning.model or DEFAULT_MODEL), prior, beginning.block)
    for raster, target, own in zip(rasters, targets, chosen, strict=True):
        add_raster(folder, Path(raster), target, own.allow_vrt, {name: getattr(own, name) for name in OPTIONS})


def _others(folder: Path, rasters: Sequence[str | Path]) -> list[Index]:
    """Indexes of the rasters that a project has besides these."""
    own = {Path(raster).resolve() for raster in rasters}
    known = read_about(folder).rasters if is_project(folder) else ()
    return [open_index(folder / each.index) for each in known if (folder / each.raster).resolve() not in own]


def _say_kept(about: About, beginning: Beginning, progress: Progress) -> None:
    """Say what a project does not begin with, as it is there already."""
    if beginning.from_model and not about.prior:
        progress.say("the classes of a model are for new projects to begin with; this one goes on as it began")
    if beginning.block not in (None, about.block):
        side = "four tiles" if about.block is None else f"{about.block:g}"
        progress.say(f"the side of the blocks is for new projects; this one goes on with {side}")


def _seen_from(folder: Path, model: str | Path) -> str:
    """How a project names a model: by its name, or its file as seen from the folder."""
    if not Path(model).expanduser().is_file():
        return str(model)
    return os.path.relpath(find_model(model).resolve(), folder.resolve())


def chosen_again(known: ProjectRaster | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a raster; what is not given is as the first time, as labels are for the cells that this made.

    Args:
        known: What the project says of the raster, if it has it.
        given: Options that are asked for now.

    Raises:
        DataError: If other cells are asked for.
    """
    if known is None or known.chosen is None:
        return dict(given)
    before = known.chosen.model_dump()
    if other := [f"`{name}`" for name in ("cells", "tile") if name in given and given[name] != before[name]]:
        side = "" if known.labelled is None else f" of {known.labelled.cell[0]} x {known.labelled.cell[1]} pixels"
        raise DataError(
            f"the labels of {known.name} are for the cells{side} of the first time; leave out {' and '.join(other)}, "
            "or begin another `project`"
        )
    return {**before, **given}
