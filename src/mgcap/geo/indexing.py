"""One raster to its index: what is missing is computed, here or by workers."""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from mgcap.errors import RasterError
from mgcap.geo.blocks import Cells, IndexPlan
from mgcap.geo.earth import pixel_metres, whole_offset
from mgcap.geo.index import FORMAT, MAX_BLOCK, About, Index, create_index, is_address, open_index
from mgcap.geo.opening import ignored_place, open_raster
from mgcap.geo.plan import MapOptions, ModelFile, Plan, chosen_options, make_plan
from mgcap.geo.raster import guessed_bands
from mgcap.geo.work import Part, Workers, compute_here
from mgcap.inference.dense import is_dense
from mgcap.inference.fingerprints import descriptor_fingerprint
from mgcap.inference.layout import windows_together
from mgcap.inference.projection import projection_for
from mgcap.persistence.locks import claimed
from mgcap.runtime import Progress, silent

if TYPE_CHECKING:
    from rasterio.io import DatasetReader

    from mgcap.classifier import SceneClassifier

#: What an index takes from the run at hand: where raster and model are now, and whether the raster is trusted.
_LIVE = ("raster", "model", "model_fingerprint", "allow_vrt")
#: Cells along the side of a block whose tiles are looked at one by one.
BLOCK = 8
#: Seconds between looks at what other processes have done.
WAIT = 0.2
#: Seconds until the rate is said; then twice as many, and so on.
SAID = 60.0
#: A plan of tiles or of cells.
_P = TypeVar("_P", bound=Plan)


class Planned(NamedTuple):
    """The work on a raster."""

    plan: Plan  #: what workers get
    about: About | None  #: of the index; None if tiles are looked at one by one
    length: int  #: of a vector
    metres: tuple[float, float] | None  #: width and height of a pixel on the ground, if that is known


def plan_work(
    classifier: SceneClassifier,
    model: str | Path | None,
    dataset: DatasetReader,
    raster: str | Path,
    options: MapOptions,
    of_tiles: bool = False,
    index: str | Path | None = None,
) -> Planned:
    """Look at a raster and work out how to describe its cells, or to map it tile by tile.

    Args:
        classifier: The model of ``model``.
        model: Its file, or its name; None for the file that the classifier knows.
        dataset: The raster, open.
        raster: Its file.
        options: What was chosen.
        of_tiles: Map it tile by tile.
        index: Where the index is or goes. One that was made densely with these descriptors tells that they can be.
    """
    net, used = classifier.model_, ModelFile.of(classifier, model)
    metres, length = pixel_metres(dataset), projection_for(net).length(net.head.in_features)
    if of_tiles:
        return Planned(make_plan(dataset, raster, classifier.imagery_, used, options), None, length, metres)
    plan = make_plan(dataset, raster, classifier.imagery_, used, options, options.cells)
    whole = all(size >= options.cells * cell for size, cell in zip(plan.size, plan.cell, strict=True))
    side, longest = max(plan.shape), max(plan.grid.rows, plan.grid.columns)
    descriptor = descriptor_fingerprint(net)
    dense = whole and not options.exact and (_was_dense(index, descriptor) or is_dense(net))
    most = windows_together(side / options.cells, side, net) if dense else 0
    most = min(most, math.isqrt(MAX_BLOCK // (2 * length)))
    block = math.ceil(longest / math.ceil(longest / (most or BLOCK)))  # so that none is nearly empty
    t, (width, height) = dataset.transform, plan.cell
    made = IndexPlan(**plan.model_dump(), block=block, dense=most > 0, offset=whole_offset(t, dataset.crs))
    about = About(
        format=FORMAT,
        plan=made.model_copy(update={"model": "", "model_fingerprint": ""}),  # others with such descriptors may use it
        descriptor=descriptor,
        projection=projection_for(net).fingerprint,
        angles=net.config.angles,
        crs=dataset.crs.to_wkt() if dataset.crs else "",
        transform=(t.a * width, t.b * height, t.c, t.d * width, t.e * height, t.f),
    )
    return Planned(made, about, length, metres)


def _was_dense(path: str | Path | None, descriptor: str) -> bool:
    """Whether there is an index that was made densely with some descriptors."""
    try:
        about = open_index(path).about if path is not None else None
    except RasterError:
        return False
    return about is not None and about.plan.dense and about.descriptor == descriptor


def _say_small(planned: Planned, progress: Progress) -> None:
    """Say that a raster is smaller than a tile, if it is."""
    plan = planned.plan
    width, height = (plan.cells_in_tile * side for side in plan.cell)
    if plan.size[0] < width or plan.size[1] < height:
        progress.say(
            f"{Path(plan.raster).name} is smaller than a tile of {width} x {height} pixels: the model sees less than "
            "it was trained on, so do not rely on what it says"
        )


def say_guesses(dataset: DatasetReader, raster: str | Path, options: MapOptions, progress: Progress) -> None:
    """Say what was guessed about a raster, and what was not read of it."""
    if (guess := guessed_bands(dataset, options.bands)) is not None:
        progress.say(f"{Path(raster).name} {guess}, `bands` says otherwise, as `bands=3,2,1`")
    if (unread := ignored_place(dataset, raster, options.allow_vrt)) is not None:
        progress.say(unread)


def at_hand(plan: _P, planned: Planned) -> _P:
    """A plan of an index with the raster and model of this run."""
    return plan.model_copy(update={name: getattr(planned.plan, name) for name in _LIVE})


def index_raster(
    classifier: SceneClassifier,
    model: str | Path | None,
    raster: str | Path,
    out: Path,
    *,
    workers: Workers | None = None,
    progress: Progress = silent,
    **options: Any,
) -> Index:
    """Describe the cells of a raster and keep their vectors.

    Args:
        classifier: The model of ``model``; its head does not count.
        model: Its file, or its name; None for the file that the classifier was saved to or loaded from.
        raster: As for :func:`mgcap.geo.mapping.map_raster`.
        out: The index, a folder; one of the same raster and kind is completed.
        workers: Compute the blocks; this process by default.
        progress: Where to report.
        **options: Of :class:`mgcap.geo.plan.MapOptions`.
    """
    chosen = chosen_options(index_raster, options)
    with open_raster(raster, chosen.allow_vrt) as dataset:
        say_guesses(dataset, raster, chosen, progress)
        planned = plan_work(classifier, model, dataset, raster, chosen, index=out)
    index = find_index(out, planned, given=True, progress=progress)
    fill_index(index, planned, workers or compute_here(classifier), progress)
    return index


def find_index(path: str | Path, planned: Planned, given: bool, progress: Progress = silent) -> Index:
    """The index at a place, which is made if it is not there.

    Args:
        path: Its place; an address, if it is whole.
        planned: What it shall be of.
        given: Whether the user named the place; if not, one of something else is left alone, and another name is taken.
        progress: Where to say that.

    Raises:
        RasterError: If there is something else.
    """
    about, length = planned.about, planned.length
    assert about is not None
    there = is_address(path) or os.path.lexists(path)
    if not there and re.match(r"\w{2,}:/", str(path)):  # an address that was a Path has lost a slash
        raise RasterError(f"{path} is no place on this machine; the address of an index that is whole is given as text")
    try:
        found = open_index(path) if there else create_index(Path(path), about, length)  # or another process was faster
        changed = found.differences(about)
        if not changed:
            if found.plan.engine != about.plan.engine:
                progress.say(f"{path} was computed by the engine {found.plan.engine}, not {about.plan.engine}")
            return found
        problem = f"{path} is an index that differs in {', '.join(changed)}"
    except RasterError as error:
        if given:
            raise
        problem = str(error)
    if given:
        raise RasterError(f"{problem}; give another name, or remove it")
    kind = hashlib.sha256(about.model_dump_json().encode()).hexdigest()[:8]
    other = Path(path).with_name(f"{Path(path).stem}.{kind}{Path(path).suffix}")
    progress.say(f"{problem}; using {other.name} instead")
    return find_index(other, planned, given=True, progress=progress)


def fill_index(index: Index, planned: Planned, workers: Workers, progress: Progress = silent) -> None:
    """Compute the blocks that an index lacks.

    Raises:
        RasterError: If it is not on this machine.
    """
    plan, name = index.plan, Path(index.name).name
    _say_small(planned, progress)
    sizes = [math.prod(len(axis.middles) for axis in plan.axes(chunk)) for chunk in range(plan.chunks)]
    missing = index.missing(progress)
    if not missing:
        return
    if is_address(index.name):
        raise RasterError(f"{index.name} is not whole; finish it where it was made, with mgcap index")
    if len(missing) < plan.chunks:
        progress.say(f"resuming {name}: {plan.chunks - len(missing)} of {plan.chunks} blocks are done")
    start, computed, pixels, due = time.monotonic(), 0, 0, SAID

    def say_rate() -> None:
        if planned.metres is not None and computed:
            minutes = (time.monotonic() - start) / 60
            area = pixels * math.prod(planned.metres) / 1e6
            rate = f"{area:.3g} km² in {minutes:.1f} min, {area / minutes:.3g} km² a minute"
            progress.say(f"{name}: {computed} cells, {rate}")

    with progress("Describing cells", sum(sizes)) as step:
        step(sum(sizes) - sum(sizes[chunk] for chunk in missing))
        for chunk, cells in _filled(index, missing, partial(workers, at_hand(plan, planned)), progress):
            step(sizes[chunk])
            known = cells.valid > 0  # what has no data costs next to nothing
            computed += int(known.sum())
            wide, high = (end - begin for begin, end in (axis.cell_edges for axis in plan.axes(chunk)))
            pixels += int(np.outer(high, wide)[known].sum())
            if time.monotonic() - start >= due:
                say_rate()
                due *= 2
    say_rate()


def _filled(
    index: Index, left: list[int], work: Callable[[Iterable[int]], Iterable[tuple[int, Part]]], progress: Progress
) -> Iterator[tuple[int, Cells]]:
    """Compute and write blocks, and share that with other processes; those that were done here, with their numbers."""
    locks = Path(index.name) / ".locks"
    locks.mkdir(exist_ok=True)
    claims: dict[int, ExitStack] = {}
    said = False

    def ours() -> Iterator[int]:
        for chunk in left:
            with ExitStack() as stack:
                if stack.enter_context(claimed(locks / str(chunk))) and not index.has(chunk):
                    claims[chunk] = stack.pop_all()
                    yield chunk

    try:
        while left:
            done = set()
            for chunk, cells in work(ours()):
                assert isinstance(cells, Cells)
                index.write(chunk, cells)
                claims.pop(chunk).close()
                done.add(chunk)
                yield chunk, cells
            left = [chunk for chunk in left if chunk not in done and not index.has(chunk)]
            if left and not said:
                blocks = f"{len(left)} of {index.plan.chunks} blocks of {Path(index.name).name}"
                progress.say(f"waiting for {blocks}, at which another process is")
                said = True
            time.sleep(WAIT if left else 0)
    finally:
        for stack in claims.values():
            stack.close()
        with suppress(OSError):  # others may still use it
            locks.rmdir()
