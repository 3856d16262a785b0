"""Images that the methods can tell apart in a moment."""

from __future__ import annotations

import torch

IMAGES = torch.rand(3, 3, 256, 256, generator=torch.Generator().manual_seed(0))


def shades(count: int) -> tuple[list[torch.Tensor], list[str]]:
    """Dark, striped and light images with some noise."""
    rng = torch.Generator().manual_seed(1)
    images, labels = [], []
    for k in range(count):
        image = torch.rand(3, 256, 256, generator=rng) * 0.2 + (0.0, 0.4, 0.8)[k % 3]
        if k % 3 == 1:
            image[:, ::16] = 0
        images.append(image)
        labels.append(("dark", "striped", "light")[k % 3])
    return images, labels
