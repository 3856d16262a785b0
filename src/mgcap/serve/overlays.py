"""The map, its uncertainty and the unknown as pictures with one pixel for each cell."""

from __future__ import annotations

import io

import numpy as np

from mgcap.errors import DataError
from mgcap.labelling.live import Fitted, Live
from mgcap.report.colours import rgb
from mgcap.typing import Array

LAYERS = ("map", "uncertainty", "unknown")
#: Colours of cells that are in doubt, and of the unknown.
DOUBT, UNKNOWN = (255, 59, 0), (194, 24, 160)


def overlay(live: Live, fitted: Fitted, raster: int, layer: str) -> bytes:
    """A layer of a raster as PNG; where nothing is said it is transparent.

    Args:
        live: The project.
        fitted: What was learnt of it.
        raster: Its number.
        layer: One of ``LAYERS``.
    """
    if layer not in LAYERS:
        raise DataError(f"there is no layer '{layer}'; there are {', '.join(LAYERS)}")
    grid = live.project.indexes[raster].plan.grid
    pixels = np.zeros((grid.rows, grid.columns, 4), np.uint8)
    if fitted.learned is not None:
        own = live.pool.cells[:, 0] == raster
        rows, columns = live.pool.cells[own, 1:].T
        pixels[rows, columns] = _colours(live, fitted, layer)[own]
    return _png(pixels)


def _colours(live: Live, fitted: Fitted, layer: str) -> Array:
    """``[n, 4]`` for the cells of the pool."""
    learned = fitted.learned
    assert learned is not None
    found = np.zeros((len(live.pool), 4), np.uint8)
    if layer == "map":
        classes = live.project.about.classes
        table = np.zeros((1 + max([*learned.classes.tolist(), *(own.number for own in classes)]), 4), np.uint8)
        for own in classes:
            table[own.number] = (*rgb(own.colour), 255)
        return np.asarray(table[learned.classes_of_cells])
    if layer == "uncertainty":
        count = learned.probabilities.shape[1]
        doubt = 1 - learned.probabilities.max(1)
        strength = doubt / (1 - 1 / count) if count > 1 else np.zeros(len(found))
        found[:, :3] = DOUBT
        found[:, 3] = (255 * np.clip(strength, 0, 1)).astype(np.uint8)
        return found
    found[learned.distance > learned.limit] = (*UNKNOWN, 255)
    return found


def _png(pixels: Array) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()
