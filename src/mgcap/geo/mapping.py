"""One raster to one map: plan, tiles, votes, files. What is computed is kept until the map is there."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import MgcapError, RasterError
from mgcap.geo.cells import Place
from mgcap.geo.heads import classify_index, coarser
from mgcap.geo.indexing import at_hand, fill_index, find_index, plan_work, say_guesses
from mgcap.geo.opening import is_virtual, open_raster
from mgcap.geo.plan import Plan, chosen_options, same_work
from mgcap.geo.polygons import check_target
from mgcap.geo.shift import Shift, find_shift, write_shift
from mgcap.geo.tiles import Answers
from mgcap.geo.votes import ClassMap, count_cells
from mgcap.geo.work import Workers, compute_here
from mgcap.geo.writing import check_outputs, remove_old, write_map, writing
from mgcap.inference.unknown import ALPHA, NOTHING, UNKNOWN, Limits
from mgcap.names import human_names
from mgcap.persistence.files import atomic_path, write_json
from mgcap.runtime import Progress, silent
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


@dataclass(frozen=True)
class Mapped:
    """A finished map.

    Attributes:
        plan: How it was made.
        found: What each cell shows.
        classes: Labels of the classes.
        areas: Of each class, in square metres (or units of the raster).
        files: What was written.
        shift: How the raster differs from the training images, if the model knows.
    """

    plan: Plan
    found: ClassMap
    classes: tuple[str, ...]
    areas: Array
    files: list[Path] = field(default_factory=list)
    shift: Shift | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as people call them."""
        return human_names(self.classes)


def map_raster(
    classifier: SceneClassifier,
    model: str | Path | None,
    raster: str | Path,
    out: Path,
    *,
    workers: Workers | None = None,
    sieve: int = 0,
    unknown: float | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Mapped:
    """Map a raster and write polygons, rasters, picture and table.

    Args:
        classifier: The model of ``model``.
        model: Its file, or its name; None for the file that the classifier was saved to or loaded from.
        raster: A GeoTIFF, JPEG 2000, PNG, JPEG or WebP file; with ``allow_vrt`` whatever else GDAL reads.
        out: A ``.gpkg``, ``.geojson`` or ``.parquet`` file; the other files stand beside it under the same name.
        workers: Compute the chunks; this process by default.
        sieve: Patches of fewer cells take the class of their largest neighbour.
        unknown: A cell is unknown where it is farther from the training images, or the model less confident, than on
            this share of those that were held out; 0: off. By default 0.01, if the model knows.
        progress: Where to report.
        **options: Of :class:`mgcap.geo.plan.MapOptions`.
    """
    chosen, classes = chosen_options(map_raster, options), tuple(str(name) for name in classifier.classes_)
    check_target(out)
    if not is_virtual(raster):
        check_outputs(out, Path(raster))
    workers, limits = workers or compute_here(classifier), _limits(classifier, unknown, progress)
    by_tiles, at = chosen.exact or chosen.overlap > 0, chosen.index or out.with_name(f"{Path(raster).stem}.zarr")
    with open_raster(raster, chosen.allow_vrt) as dataset:
        say_guesses(dataset, raster, chosen, progress)
        planned = plan_work(classifier, model, dataset, raster, chosen, by_tiles, at)
        changed = datetime.datetime.fromtimestamp(planned.plan.changed[0] / 1e9, datetime.UTC)
        place = Place(dataset.transform, dataset.crs, changed)
    index = None
    if planned.about is None:
        plan = planned.plan
        found = count_cells(plan, compute_chunks(plan, _parts(out), workers, len(classes), progress), sieve, limits)
    else:
        index = find_index(at, planned, chosen.index is not None, progress).keeping()
        progress.say(f"the index of this raster is {index.name}")
        fill_index(index, planned, workers, progress)
        plan = at_hand(coarser(index, chosen.cells), planned)
        found = classify_index(classifier.model_, index, plan, sieve, classifier.sample_, limits, progress)
    if not found.has_data.any():
        shutil.rmtree(_parts(out), ignore_errors=True)
        raise RasterError(f"{raster} has no tile with data in {100 * plan.min_valid:.0f} % of its pixels or more")
    if limits != NOTHING:
        classes = (*classes, UNKNOWN)
    with progress("Writing the map", None), writing(out):
        areas, files = write_map(out, plan, found, place, classes, dissolve=chosen.dissolve)
        shift = None if limits == NOTHING else find_shift(classifier, found, plan, place, index)
        if shift is not None and shift.typical:
            files += write_shift(out, shift, plan, place, classifier)
        remove_old(out, files)
    shutil.rmtree(_parts(out), ignore_errors=True)
    return Mapped(plan, found, classes, areas, files, shift)


def _limits(classifier: SceneClassifier, unknown: float | None, progress: Progress) -> Limits:
    """Where the unknown begins; by default nowhere if the model cannot say."""
    try:
        return classifier.limits(ALPHA if unknown is None else unknown)
    except MgcapError as error:
        if unknown is not None:
            raise
        progress.say(f"nothing will be called unknown: {error}")
        return NOTHING


def compute_chunks(
    plan: Plan, parts: Path, workers: Workers, classes: int, progress: Progress = silent
) -> Iterator[Answers]:
    """Compute the chunks that a folder has not got whole, and give all of them in order."""
    kept = parts / "plan.json"
    try:
        usable = same_work(plan, json.loads(kept.read_text()))
    except (OSError, ValueError, RecursionError):
        usable = False
    if not usable:
        _remove(parts)
        write_json(kept, plan.model_dump(mode="json"))
    found = {chunk for chunk in range(plan.chunks) if os.path.lexists(_part(parts, chunk))}
    whole = {chunk for chunk in found if _is_whole(_part(parts, chunk), plan, chunk, classes)}
    if whole:
        progress.say(f"resuming: {len(whole)} of {plan.chunks} parts of the map are done")
    if damaged := found - whole:
        progress.say(f"{len(damaged)} parts of the map are damaged and will be computed again")
    for chunk in damaged:
        _remove(_part(parts, chunk))
    with progress("Classifying tiles", len(plan.grid)) as step:
        step(sum(len(plan.tiles(chunk)) for chunk in whole))
        for chunk, answers in workers(plan, [chunk for chunk in range(plan.chunks) if chunk not in whole]):
            assert isinstance(answers, Answers)
            with atomic_path(_part(parts, chunk)) as temporary, temporary.open("wb") as file:
                np.savez(file, **answers._asdict())
            step(len(answers.angles))
    return (_read_part(_part(parts, chunk)) for chunk in range(plan.chunks))


def _parts(out: Path) -> Path:
    """Where the parts of a map are kept until it is done."""
    return out.with_name(out.name + ".parts")


def _part(parts: Path, chunk: int) -> Path:
    return parts / f"{chunk:06d}.npz"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _read_part(path: Path) -> Answers:
    with np.load(path, allow_pickle=False) as arrays:
        return Answers(**{name: arrays[name] for name in Answers._fields})


def _is_whole(path: Path, plan: Plan, chunk: int, classes: int) -> bool:
    """Whether a part that was kept can be read and has the size of its chunk; the file has checksums of its own."""
    tiles, k = len(plan.tiles(chunk)), plan.cells_in_tile
    try:
        answers = _read_part(path) if path.is_file() else None
    except Exception:  # a damaged file fails in too many ways to name
        return False
    return answers is not None and [(own.shape, own.dtype) for own in answers] == [
        (shape, np.dtype(np.float32)) for shape in ((tiles, classes), (tiles,), (tiles, k, k), (tiles,))
    ]
