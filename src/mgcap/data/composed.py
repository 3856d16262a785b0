"""Scenes composed of training images: what the cells of a raster show is not centred, and of several kinds at once.

A scene is made of two mosaics of images; irregular patches, some long and thin as roads and rivers are, show the one or
the other. Images are rotated by quarters, scaled and in other light. Each pixel keeps the class of its image, so that a
window anywhere has known shares of the classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from scipy.ndimage import gaussian_filter, rotate
from torch import Tensor

from mgcap.data.augmentation import random_colour
from mgcap.typing import Array

#: Images along the side of a mosaic.
ACROSS = 10
#: How much larger or smaller, brighter or darker an image may be, as logarithms; and the colours of its channels.
SMALLER, LARGER, LIGHT, COLOUR = math.log(0.8), math.log(1.4), 0.25, 0.2
#: Width of patches for the side of an image; and how many times longer than wide they may be.
PATCH, LONGER = 0.3, 3.0

#: One of the images ``[3, H, W]`` in [0, 1], by its number.
Read = Callable[[int], Tensor]


def in_turn(members: Sequence[int], count: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Members in random order, ``count`` at a time, each as often as any other but for one."""
    left: list[int] = []
    while True:
        while len(left) < count:
            left += rng.permutation(np.asarray(members)).tolist()
        yield left[:count]
        left = left[count:]


def compose(
    read: Read, mosaics: Sequence[Sequence[int]], targets: Array, side: int, rng: np.random.Generator
) -> tuple[Tensor, Array]:
    """A scene: pixels ``[3, s, s]``, and the class ``[s, s]`` of each.

    Args:
        read: Gives images.
        mosaics: For each of two mosaics the numbers of ``ACROSS`` x ``ACROSS`` images.
        targets: Classes of all images.
        side: Of an image within the scene, in pixels.
        rng: Draws everything.
    """
    first, second = (_mosaic(read, own, targets, side, rng) for own in mosaics)
    offset = tuple(int(n) for n in rng.integers(0, side, 2))
    pixels, classes = torch.roll(second[0], offset, (1, 2)), np.roll(second[1], offset, (0, 1))
    patches = _patches(side, rng)
    share = torch.from_numpy(1 / (1 + np.exp(-40 * patches.clip(-1, 1)))).float()  # their borders are a little soft
    return first[0] * share + pixels * (1 - share), np.where(patches > 0, first[1], classes)


def shares(classes: Array, corner: tuple[int, int], side: int, count: int) -> Array:
    """Shares ``[K]`` of the classes in a square window from a corner (x, y)."""
    x, y = corner
    window = classes[y : y + side, x : x + side]
    found: Array = np.bincount(window.ravel(), minlength=count).astype(np.float32) / window.size
    return found


def _mosaic(
    read: Read, members: Sequence[int], targets: Array, side: int, rng: np.random.Generator
) -> tuple[Tensor, Array]:
    pixels = torch.zeros(3, ACROSS * side, ACROSS * side)
    for place, member in enumerate(members):
        row, column = (side * n for n in divmod(place, ACROSS))
        pixels[:, row : row + side, column : column + side] = _altered(read(member), side, rng)
    classes = targets[np.asarray(members)].reshape(ACROSS, ACROSS)
    return pixels, classes.repeat(side, 0).repeat(side, 1)


def _altered(image: Tensor, side: int, rng: np.random.Generator) -> Tensor:
    """An image at another scale, in other light, rotated by quarters, ``[3, side, side]``."""
    share = math.exp(-rng.uniform(SMALLER, LARGER))
    height, width = image.shape[-2:]
    rows, columns = max(1, round(height * min(share, 1))), max(1, round(width * min(share, 1)))
    top, left = int(rng.integers(height - rows + 1)), int(rng.integers(width - columns + 1))
    image = image[:, top : top + rows, left : left + columns]
    inner = max(1, round(side / max(share, 1)))  # a smaller image is mirrored at its borders
    image = F.interpolate(image[None], (inner, inner), mode="bilinear", antialias=True)
    low = (side - inner) // 2
    border = (low, side - inner - low) * 2
    image = F.pad(image, border, mode="reflect")
    image = random_colour(image[0].clamp(0, 1), COLOUR, rng)
    contrast, brightness, gamma = np.exp(LIGHT * rng.uniform(-1, 1, 3)).tolist()
    middle = image.mean()
    image = ((middle + contrast * (image - middle)) * brightness).clamp(0, 1) ** gamma
    return image.rot90(int(rng.integers(4)), (1, 2))


def _patches(side: int, rng: np.random.Generator) -> Array:
    """A smooth random field over a scene, as often above as below zero."""
    coarse = 4  # pixels: it is made small and enlarged
    length = -(-ACROSS * side // coarse)
    wide = PATCH * side / coarse * math.exp(rng.uniform(-0.5, 0.5))
    long = wide * math.exp(rng.uniform(0, math.log(LONGER)))
    field = gaussian_filter(rng.normal(size=(length * 3 // 2, length * 3 // 2)), (wide, long), mode="wrap")
    field = rotate(field, float(rng.uniform(0, 180)), reshape=False, order=1, mode="wrap")
    field = field[length // 4 :, length // 4 :][:length, :length]
    field = (field - np.median(field)) / max(float(field.std()), 1e-9)
    enlarged = F.interpolate(torch.from_numpy(field)[None, None], (ACROSS * side,) * 2, mode="bilinear")
    found: Array = enlarged[0, 0].numpy()
    return found
