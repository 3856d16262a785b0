"""Aerial-looking scenes drawn by chance, the same for the same seed: for demonstrations and tests without data."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from PIL import Image

from mgcap.data.drawing import Canvas, clouds
from mgcap.data.scenes import SCENES
from mgcap.data.stream import Item
from mgcap.errors import DataError
from mgcap.persistence.files import atomic_path
from mgcap.typing import Array

#: Every class, sorted.
CLASSES: tuple[str, ...] = tuple(SCENES)

#: Metres that a picture shows at scale 1.
METRES = 105.0
_DIAGONAL = 2**0.5


def draw_scene(name: str, seed: int = 0, index: int = 0, size: int = 256) -> Array:
    """Draw one scene at a random direction, scale, light and colour, with clutter and noise.

    Args:
        name: One of :data:`CLASSES`.
        seed: Seed of the whole set.
        index: Which picture of the class.
        size: Side in pixels.

    Returns:
        uint8 RGB, ``[size, size, 3]``; the same for the same arguments.
    """
    if name not in SCENES:
        raise DataError(f"there is no synthetic class '{name}'; there are {', '.join(CLASSES)}")
    if not 16 <= size <= 4096:
        raise DataError(f"the side of a scene must be 16 to 4096 pixels, not {size}")
    rng = np.random.default_rng([seed, CLASSES.index(name), index])
    metres = METRES * rng.uniform(0.75, 1.3)
    # Drawn larger than needed, so that it can be rotated, and at twice the resolution, so that edges are smooth.
    side = int(np.ceil(size * (2 if size <= 512 else 1) * _DIAGONAL))
    canvas = Canvas(rng, side, metres * _DIAGONAL)
    SCENES[name](canvas)
    rotated = canvas.image.rotate(rng.uniform(0, 360), Image.Resampling.BICUBIC)
    margin = (side - side / _DIAGONAL) / 2
    shift = rng.uniform(-0.12, 0.12, 2) * margin
    box = (margin + shift[0], margin + shift[1], side - margin + shift[0], side - margin + shift[1])
    picture = rotated.resize((size, size), Image.Resampling.BOX, box)
    return _expose(np.asarray(picture, dtype=np.float32) / 255, rng)


def _expose(pixels: Array, rng: np.random.Generator) -> Array:
    """Light, haze, colour cast, uneven exposure, blur and sensor noise."""
    size = len(pixels)
    gain = rng.uniform(0.65, 1.25) * rng.uniform(0.86, 1.14, 3)
    haze = rng.uniform(0, 0.16)
    uneven = 1 + rng.uniform(0, 0.06) * clouds(rng, size, size / 2, 2)
    pixels = np.clip(pixels, 0, 1) ** rng.uniform(0.8, 1.25) * gain * uneven[..., None]
    grey = pixels.mean(-1, keepdims=True)
    pixels = grey + (pixels - grey) * rng.uniform(0.55, 1.15)
    pixels = pixels * (1 - haze) + haze * np.array((0.72, 0.76, 0.80))
    pixels = pixels + rng.normal(0, rng.uniform(0.005, 0.03), pixels.shape)
    return (np.clip(pixels, 0, 1) * 255).round().astype(np.uint8)


def generate(
    per_class: int, size: int = 256, seed: int = 0, classes: Sequence[str] = CLASSES
) -> Iterator[tuple[str, int, Array]]:
    """Yield (class, index, picture) for a whole set."""
    for name in classes:
        for index in range(per_class):
            yield name, index, draw_scene(name, seed, index, size)


def _write_scene(path: Path, name: str, seed: int, index: int, size: int) -> None:
    with atomic_path(path) as temporary:
        Image.fromarray(draw_scene(name, seed, index, size)).save(temporary, "PNG")


def write_scenes(
    folder: str | Path, per_class: int, size: int = 256, seed: int = 0, on_step: Callable[[int], None] = lambda n: None
) -> int:
    """Write a set as PNG files, one subfolder per class; files that exist are kept.

    Returns:
        How many files were written.
    """
    if per_class < 1:
        raise DataError(f"the number of scenes per class must be at least 1, not {per_class}")
    folder = Path(folder).expanduser()
    jobs = [
        (folder / name / f"{name}_{seed}_{size}_{index:04d}.png", name, seed, index, size)
        for name in CLASSES
        for index in range(per_class)
    ]
    missing = [job for job in jobs if not job[0].exists()]
    on_step(len(jobs) - len(missing))
    if not missing:
        return 0
    draw_scene(CLASSES[0], seed, 0, size)  # a wrong size is refused before anything is written
    for name in CLASSES:
        (folder / name).mkdir(parents=True, exist_ok=True)
    workers = min(os.cpu_count() or 1, 8) if len(missing) > 100 else 1
    if workers == 1:
        for job in missing:
            _write_scene(*job)
            on_step(1)
        return len(missing)
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        try:
            for done in as_completed([pool.submit(_write_scene, *job) for job in missing]):
                done.result()
                on_step(1)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return len(missing)


def calibration_scenes() -> list[Item]:
    """Drawn scenes to calibrate int8 on: no run tests them, and studies of any splits share their features."""
    return [draw_scene(CLASSES[i % len(CLASSES)], 0, i, 256) for i in range(64)]
