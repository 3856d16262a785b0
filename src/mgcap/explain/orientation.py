"""How alike the images of a class are oriented, before and after they are put in their canonical pose."""

from __future__ import annotations

import numpy as np

from mgcap.typing import Array


def dominant_orientation(image: Array) -> tuple[float, float]:
    r"""The direction that the edges of an image have on the whole, by its structure tensor.

    Args:
        image: ``[H, W]`` or ``[H, W, 3]``; a disc in its middle is looked at, so that no direction is favoured.

    Returns:
        Degrees in [0, 180), counter-clockwise from the x axis, along the edges; and the coherence in [0, 1], which is 0
        where all directions are alike.
    """
    grey = image.mean(-1) if image.ndim == 3 else image
    dy, dx = np.gradient(grey.astype(np.float64))
    height, width = grey.shape
    y, x = np.mgrid[:height, :width]
    radius = np.hypot((2 * y + 1) / height - 1, (2 * x + 1) / width - 1)
    inside = radius < 0.95
    # gradients as complex numbers, squared: opposite directions are the same orientation; y points down
    squared: Array = np.square(dx - 1j * dy)[inside]
    total = np.abs(squared).sum()
    mean = squared.sum()
    across = 0.5 * np.degrees(np.angle(mean))
    return float((across + 90) % 180), float(np.abs(mean) / total) if total > 0 else 0.0


def circular_variance(orientations: Array) -> float:
    """Of orientations in degrees modulo 180: 0 where all are alike, 1 where they point everywhere."""
    if not len(orientations):
        return float("nan")
    return float(1 - np.abs(np.exp(2j * np.radians(orientations)).mean()))


def rotated_orientation(orientations: Array, angles: Array) -> Array:
    """The orientations after images were rotated clockwise by angles, in degrees."""
    rotated: Array = (orientations - angles) % 180
    return rotated


def sharpness(images: Array) -> float:
    """How much of the detail of images ``[n, H, W, 3]`` is left in their mean: 1 where all are the same.

    The root mean square gradient of the mean image, by that of the single images.
    """

    def energy(image: Array) -> float:
        dy, dx = np.gradient(image.mean(-1).astype(np.float64))
        return float((dx**2 + dy**2).mean())

    alone = np.mean([energy(image) for image in images])
    return float(np.sqrt(energy(images.mean(0)) / alone)) if alone > 0 else float("nan")
