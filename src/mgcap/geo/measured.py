"""What maps cost, and whether the dense way says what the tile-by-tile way says: figures of one run on one machine."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mgcap.bench.speed import peak_memory_mib
from mgcap.classifier import SceneClassifier
from mgcap.data.folders import SceneFolder
from mgcap.data.splits import Split
from mgcap.data.stream import to_tensor
from mgcap.errors import DataError, RasterError
from mgcap.geo.blocks import Cells
from mgcap.geo.grid import Grid
from mgcap.geo.index import Index, create_index, open_index
from mgcap.geo.mapping import Mapped, map_raster
from mgcap.geo.nearest import Gallery
from mgcap.geo.search import search
from mgcap.inference import layout
from mgcap.inference.dense import describe_block
from mgcap.inference.layout import Layout
from mgcap.inference.projection import projection_for
from mgcap.names import human_name
from mgcap.persistence.header import one_line
from mgcap.runtime import Progress, silent
from mgcap.typing import Array

#: Probability above which the tile-by-tile way counts as sure.
SURE = 0.9
#: Cells of the large search, and what is added to their vectors in standard deviations, so that no two are the same.
MANY, NOISE = 100_000, 0.05
#: Images along the side of a mosaic of test images.
ACROSS = 8


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a function took, and its result."""
    start = time.perf_counter()
    result = work()
    return time.perf_counter() - start, result


def bench_map(
    classifier: SceneClassifier, model: str | Path, raster: str | Path, cells: int = 4, progress: Progress = silent
) -> dict[str, Any]:
    """Map a raster tile by tile, and densely with an index; a second time, and with other blocks.

    Args:
        classifier: The model of ``model``.
        model: Its file, or its name.
        raster: As for :func:`mgcap.geo.mapping.map_raster`.
        cells: Along the side of a tile.
        progress: Where to report.
    """
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)

        def make(name: str, **options: Any) -> tuple[float, Mapped]:
            return timed(lambda: map_raster(classifier, model, raster, folder / name, progress=progress, **options))

        tiles, exact = make("tiles.gpkg", exact=True, unknown=0)
        first, dense = make("dense.gpkg", cells=cells, index=folder / "dense.zarr", unknown=0)
        second = _second_seconds(model, raster, folder, ["--cells", cells, "--engine", classifier.engine_.name])
        seconds_search, seconds_large = (_search_seconds(folder / "dense.zarr", many) for many in (0, MANY))
        shifted = _other_blocks(folder / "dense.zarr", make, cells)
    count, overlapping = len(exact.plan.grid), _overlapping(exact, cells)
    agreement, sure = _agreement(exact, dense, cells)
    everywhere, _ = _agreement(exact, dense, cells, sure=0.0)
    return {
        "tiles": count,
        "cells": int(dense.found.has_data.sum()),
        "seconds_tile_by_tile": round(tiles, 2),
        "seconds_overlapping_tiles_estimated": round(tiles * overlapping / count, 2),
        "seconds_index_and_map": round(first, 2),
        "seconds_second_map": round(second, 2),
        "seconds_search": round(seconds_search, 4),
        f"seconds_search_of_{MANY}_cells": round(seconds_large, 4),
        "times_tile_by_tile": round(first / tiles, 3),
        "times_faster_than_overlapping_tiles": round(tiles * overlapping / count / first, 2),
        "agreement_where_tiles_are_sure": round(agreement, 4),
        "sure_tiles": sure,
        "agreement_over_all_tiles": round(everywhere, 4),
        "agreement_with_blocks_of_half_the_size": round(shifted, 4),
        "peak_memory_mib": peak_memory_mib(),
        "shares": _shares(dense),
    }


def _shares(done: Mapped) -> dict[str, float]:
    """The share of each class of the area, the largest first."""
    total = float(done.areas.sum())
    order = np.argsort(-done.areas)
    return {human_name(done.classes[k]): round(float(done.areas[k]) / total, 4) for k in order if done.areas[k] > 0}


def _overlapping(exact: Mapped, cells: int) -> int:
    """How many tiles there are where each is moved by one of that many cells."""
    grid = exact.plan.grid
    finer = Grid.of(grid.width, grid.height, (grid.cell_width, grid.cell_height), cells)
    return len(finer)


def _agreement(exact: Mapped, dense: Mapped, cells: int, sure: float = SURE) -> tuple[float, int]:
    """The share of sure tiles whose middle cells say the same together, and how many are sure."""
    same = []
    middle = slice((cells - 1) // 2, cells // 2 + 1)
    for row, column in itertools.product(*map(range, exact.found.classes.shape)):
        own = exact.found.probabilities[row, column]
        if not np.nan_to_num(own).max() > sure:
            continue
        grid = exact.plan.grid
        tile = grid.tile(row * grid.tile_columns + column)
        top, left = round(tile.y / dense.plan.grid.cell_height), round(tile.x / dense.plan.grid.cell_width)
        square = dense.found.probabilities[top : top + cells, left : left + cells][middle, middle]
        if square.size and not np.isnan(square).all():
            same.append(int(np.nanmean(square, (0, 1)).argmax()) == int(own.argmax()))
    return float(np.mean(same)) if same else float("nan"), len(same)


def _other_blocks(index: Path, make: Callable[..., tuple[float, Mapped]], cells: int) -> float:
    """The share of cells that have the same class where blocks are half as large, so that seams lie elsewhere."""
    before = layout.MOST_WINDOWS
    plan = open_index(index).plan
    layout.MOST_WINDOWS = max(1, plan.block // 2)
    try:
        _, other = make("other.gpkg", cells=cells, index=index.with_name("other.zarr"), unknown=0)
    finally:
        layout.MOST_WINDOWS = before
    _, first = make("again.gpkg", cells=cells, index=index, unknown=0)
    known = first.found.has_data & other.found.has_data
    return float((first.found.classes == other.found.classes)[known].mean())


def _second_seconds(model: str | Path, raster: str | Path, folder: Path, options: Sequence[object]) -> float:
    """Seconds of the command that maps a raster again, from its start to its end."""
    given = ["--model", model, "--out", folder / "second.gpkg", "--index", folder / "dense.zarr", *options]
    command = [sys.executable, "-m", "mgcap", "map", raster, *given]
    seconds, done = timed(lambda: subprocess.run([str(word) for word in command], capture_output=True, text=True))
    if done.returncode:
        raise RasterError(f"the second map failed: {one_line(done.stderr)}")
    return seconds


def _search_seconds(index: Path, many: int = 0) -> float:
    """Seconds of a search for the place in the middle, in an index that is open.

    Args:
        index: Its path.
        many: Number of cells that are searched: those of the index again and again, with a little noise.
    """
    found = open_index(index)
    grid, t = found.plan.grid, found.about.transform
    x, y = grid.columns / 2, grid.rows / 2
    at = t[2] + t[0] * x + t[1] * y, t[5] + t[3] * x + t[4] * y
    if many:
        found = _repeated(found, index.with_name("many.zarr"), many)
    gallery = Gallery([found])
    search(gallery, at=at, top=10)
    return timed(lambda: search(gallery, at=at, top=10))[0]


def _repeated(index: Index, path: Path, many: int) -> Index:
    """An index of ``many`` cells or more: its own side by side and below each other, with noise."""
    rng, grid, block = np.random.default_rng(0), index.plan.grid, 64
    vectors, rotations, valid = (np.asarray(index.group[name]) for name in ("vectors", "rotations", "valid"))
    times = math.ceil(math.sqrt(many / (grid.rows * grid.columns)))
    size = times * grid.columns * grid.cell_width, times * grid.rows * grid.cell_height
    plan = index.plan.model_copy(update={"size": size, "block": block})
    made = create_index(path, index.about.model_copy(update={"plan": plan}), vectors.shape[-1])
    for chunk in range(plan.chunks):
        rows, columns = (
            np.arange(own.start, own.stop) % n for own, n in zip(plan.cells(chunk), valid.shape, strict=True)
        )
        own = np.ix_(rows, columns)
        noise = NOISE * vectors.std() * rng.standard_normal((len(rows), len(columns), vectors.shape[-1]), np.float32)
        made.write(chunk, Cells((vectors[own] + noise).astype(np.float16), rotations[own], valid[own]))
    return made


def mosaic_accuracy(classifier: SceneClassifier, folder: SceneFolder, split: Split, seed: int = 0) -> dict[str, Any]:
    """Accuracy on test images by themselves, and put side by side, so that what surrounds them misleads.

    Args:
        classifier: Trained on the split's training images.
        folder: All images.
        split: Which are for the test; as many as fill whole mosaics are taken.
        seed: Draws them.

    Raises:
        DataError: If they do not fill a mosaic.
    """
    if len(split.test) < ACROSS**2:
        raise DataError(f"a mosaic takes {ACROSS**2} test images; there are {len(split.test)}")
    rng = np.random.default_rng(seed)
    chosen = rng.permutation(np.array(split.test))[: len(split.test) // ACROSS**2 * ACROSS**2]
    files = [folder.paths[i] for i in chosen]
    labels = np.array([folder.labels[i] for i in chosen])
    alone = classifier.predict(files)
    model, side = classifier.model_, classifier.imagery_.side
    projection = projection_for(model)
    weight, bias = projection.fold(model.head)
    answers: list[Array] = []
    for start in range(0, len(chosen), ACROSS**2):
        vectors = projection(_mosaic(classifier, files[start : start + ACROSS**2], side))
        answers.append((vectors @ weight.T + bias).argmax(1).numpy())
    dense = classifier.classes_[np.concatenate(answers)]
    return {
        "images": len(chosen),
        "accuracy_alone": round(100 * float((alone == labels).mean()), 2),
        "accuracy_in_mosaics": round(100 * float((dense == labels).mean()), 2),
    }


def _mosaic(classifier: SceneClassifier, files: list[Path], side: int) -> torch.Tensor:
    """Descriptors of images that stand side by side."""
    model = classifier.model_
    places = tuple((k + 0.5 - ACROSS / 2) * side for k in range(ACROSS))
    plan = Layout(places, places, side, model.config)
    images = [
        torch.nn.functional.interpolate(to_tensor(file)[None], (side, side), mode="bilinear", antialias=True)[0]
        for file in files
    ]
    rows = [torch.cat(images[k : k + ACROSS], 2) for k in range(0, len(images), ACROSS)]
    pixels = torch.cat(rows, 1)
    border = max(0, -(-(plan.side + 2 - pixels.shape[-1]) // 2))
    pixels = torch.nn.functional.pad(pixels[None], (border,) * 4, mode="reflect")[0]
    found = describe_block(model, classifier.engine_, plan, pixels, range(ACROSS**2))
    return found.descriptors.float().cpu()
