"""Random crops, flips, rotations and colours of training images (the paper has the first two, below Eq. 28).

Every draw comes from a generator of its own, made from the seed, the epoch and the number of the image. So it depends
neither on the order of the images nor on the process that looks at them, and a run that was killed resumes with
the same crops as one that was not.
"""

from __future__ import annotations

import math

import numpy as np
import torch.nn.functional as F
from torch import Tensor


def random_crop(image: Tensor, share: float, rng: np.random.Generator) -> Tensor:
    """Cut ``share`` of each side of an image ``[3, H, W]`` at a random place."""
    height, width = (max(1, round(side * share)) for side in image.shape[-2:])
    top = int(rng.integers(image.shape[-2] - height + 1))
    left = int(rng.integers(image.shape[-1] - width + 1))
    return image[..., top : top + height, left : left + width]


def rotated(image: Tensor, angle: float) -> Tensor:
    """An image ``[3, H, W]`` rotated clockwise about its centre by an angle in degrees, with mirrored corners."""
    height, width = image.shape[-2:]
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    where = image.new_tensor([[c, s * height / width, 0], [-s * width / height, c, 0]])
    grid = F.affine_grid(where[None], [1, *image.shape], align_corners=False)
    return F.grid_sample(image[None], grid, padding_mode="reflection", align_corners=False)[0]


def random_colour(image: Tensor, strength: float, rng: np.random.Generator) -> Tensor:
    """Change brightness, contrast, saturation and the balance of the channels, by factors within 1 +- strength."""
    brightness, contrast, saturation, *balance = (1 + strength * rng.uniform(-1, 1, 6)).tolist()
    image = image * image.new_tensor(balance)[:, None, None].mul(brightness)
    grey = image.mean(0, keepdim=True)
    image = grey + saturation * (image - grey)
    middle = image.mean()
    changed: Tensor = middle + contrast * (image - middle)
    return changed.clamp(0, 1)


def mix(image: Tensor, other: Tensor, share: float) -> Tensor:
    """A share of an image and the rest of another, which is resized to it (mixup, Zhang et al. 2018)."""
    if other.shape != image.shape:
        other = F.interpolate(other[None], image.shape[-2:], mode="bilinear", antialias=True)[0]
    return share * image + (1 - share) * other


def augment(
    image: Tensor,
    *,
    seed: tuple[int, ...],
    crop: float = 1.0,
    horizontal: bool = True,
    vertical: bool = False,
    rotate: float = 0.0,
    colour: float = 0.0,
) -> Tensor:
    """A random part of an image, perhaps rotated, mirrored and in other colours.

    Args:
        image: ``[3, H, W]``.
        seed: The same numbers give the same outcome.
        crop: Which share of each side is kept.
        horizontal: Mirror left and right every other time.
        vertical: Mirror top and bottom every other time.
        rotate: How often the image is rotated by a random angle first: 1 always.
        colour: See :func:`random_colour`.
    """
    rotations = np.random.default_rng((*seed, 1))
    angle = float(rotations.uniform(0, 360))
    if rotations.random() < rotate:
        image = rotated(image, angle)
    rng = np.random.default_rng(seed)
    image = random_crop(image, crop, rng)
    flips = [axis for axis, wanted in ((-1, horizontal), (-2, vertical)) if rng.random() < 0.5 and wanted]
    image = image.flip(flips) if flips else image
    return random_colour(image, colour, rng) if colour else image
