"""One raster to one map: plan, tiles, votes, files. What is computed is kept until the map is there."""

from __future__ import annotations

import datetime
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mgcap.errors import RasterError
from mgcap.geo.opening import ignored_place, is_virtual, open_raster
from mgcap.geo.pictures import class_areas, write_areas, write_class_raster, write_probability_raster, write_quick_look
from mgcap.geo.plan import MapOptions, ModelFile, Plan, make_plan, same_work
from mgcap.geo.polygons import SUFFIXES, Place, write_polygons
from mgcap.geo.raster import guessed_bands
from mgcap.geo.tiles import Answers, answer_chunk
from mgcap.geo.votes import ClassMap, count_cells
from mgcap.persistence.files import atomic_path, sha256_of, write_json
from mgcap.persistence.shipped import find_model
from mgcap.runtime import Progress, silent
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


#: Computes chunks of a plan, in any order, and gives each as it is done.
Workers = Callable[[Plan, Sequence[int]], Iterable[tuple[int, Answers]]]


@dataclass(frozen=True)
class Mapped:
    """A finished map.

    Attributes:
        plan: How it was made.
        found: What each cell shows.
        classes: Names of the classes.
        areas: Of each class, in square metres (or units of the raster).
        files: What was written.
    """

    plan: Plan
    found: ClassMap
    classes: tuple[str, ...]
    areas: Array
    files: list[Path] = field(default_factory=list)


@lru_cache(maxsize=2)
def load_for(model: str, fingerprint: str, engine: str) -> SceneClassifier:
    """The classifier of a plan, once per process."""
    from mgcap.classifier import SceneClassifier

    if sha256_of(Path(model)) != fingerprint:
        raise RasterError(f"{model} is not the model that the map was planned with")
    return SceneClassifier.load(model, engine=engine)


def compute_here(classifier: SceneClassifier) -> Workers:
    """Chunks one after the other in this process."""

    def work(plan: Plan, chunks: Sequence[int]) -> Iterator[tuple[int, Answers]]:
        for chunk in chunks:
            yield chunk, answer_chunk(classifier.model_, classifier.engine_, plan, chunk)

    return work


def map_raster(
    classifier: SceneClassifier,
    model: str | Path,
    raster: str | Path,
    out: Path,
    *,
    workers: Workers | None = None,
    sieve: int = 0,
    progress: Progress = silent,
    **options: Any,
) -> Mapped:
    """Map a raster and write polygons, rasters, picture and table.

    Args:
        classifier: The model of ``model``.
        model: Its file, or its name.
        raster: A GeoTIFF, JPEG 2000, PNG, JPEG or WebP file; with ``allow_vrt`` whatever else GDAL reads.
        out: A ``.gpkg`` or ``.geojson`` file; the other files stand beside it under the same name.
        workers: Compute the chunks; this process by default.
        sieve: Patches of fewer cells take the class of their largest neighbour.
        progress: Where to report.
        **options: Of :class:`mgcap.geo.plan.MapOptions`.
    """
    if out.suffix.lower() not in SUFFIXES:
        raise RasterError(f"`out` takes a .gpkg or .geojson file, not {out}")
    if not is_virtual(raster) and out.with_suffix(".tif").resolve() == Path(raster).resolve():
        raise RasterError(f"the class raster would overwrite {raster}; give `out` another name")
    file = find_model(model)
    used, chosen = ModelFile(file, sha256_of(file), classifier.engine_.name), MapOptions(**options)
    with open_raster(raster, chosen.allow_vrt) as dataset:
        if (guess := guessed_bands(dataset, chosen.bands)) is not None:
            progress.say(f"{Path(raster).name} {guess}, `bands` says otherwise, as `bands=3,2,1`")
        plan = make_plan(dataset, raster, classifier.imagery_, used, chosen)
        changed = datetime.datetime.fromtimestamp(plan.changed[0] / 1e9, datetime.UTC)
        place = Place(dataset.transform, dataset.crs, changed)
        if (unread := ignored_place(dataset, raster, plan.allow_vrt)) is not None:
            progress.say(unread)
    parts = out.with_name(out.name + ".parts")
    classes = tuple(str(name) for name in classifier.classes_)
    answers = compute_chunks(plan, parts, workers or compute_here(classifier), len(classes), progress)
    found = count_cells(plan, answers, sieve)
    if not found.has_data.any():
        shutil.rmtree(parts, ignore_errors=True)
        raise RasterError(f"{raster} has no tile with data in {100 * plan.min_valid:.0f} % of its pixels or more")
    grid = plan.grid
    areas, cells = class_areas(found, grid, place, len(classes))
    names = {kind: out.with_suffix(kind) for kind in (".tif", ".probability.tif", ".png", ".csv")}
    with progress("Writing the map", None):
        write_polygons(out, found, grid, place, classes)
        write_class_raster(names[".tif"], found, grid, place, classes)
        write_probability_raster(names[".probability.tif"], found, grid, place, classes)
        write_quick_look(names[".png"], plan, found, classes, areas)
        write_areas(names[".csv"], classes, areas, cells, place.unit)
    shutil.rmtree(parts, ignore_errors=True)
    return Mapped(plan, found, classes, areas, [out, *names.values()])


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
            with atomic_path(_part(parts, chunk)) as temporary, temporary.open("wb") as file:
                np.savez(file, **answers._asdict())
            step(len(answers.angles))
    return (_read_part(_part(parts, chunk)) for chunk in range(plan.chunks))


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
        (shape, np.dtype(np.float32)) for shape in ((tiles, classes), (tiles,), (tiles, k, k))
    ]
