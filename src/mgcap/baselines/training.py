"""The training loop of networks that are compared: SGD with momentum, a cosine, two terms of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOMENTUM, DECAY = 0.9, 5e-4

#: From the images of a batch and the number of the epoch to the two terms of the loss.
Terms = Callable[[list[int], int], tuple[Tensor, Tensor]]


def train(
    groups: list[dict[str, Any]], images: int, epochs: int, batch: int, terms: Terms, weight: float = 1.0
) -> list[tuple[float, float]]:
    """Train in place.

    Args:
        groups: Parameters with their learning rates, as torch's optimisers take them.
        images: How many training images there are.
        epochs: How many.
        batch: Images in one step.
        terms: Gives the two terms of the loss.
        weight: Of the second.

    Returns:
        The means of both terms in each epoch.
    """
    optimiser = torch.optim.SGD(groups, momentum=MOMENTUM, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-images // batch))
    history = []
    for epoch in range(epochs):
        order = torch.randperm(images).tolist()
        total = np.zeros(2)
        for start in range(0, images, batch):
            some = order[start : start + batch]
            first, second = terms(some, epoch)
            optimiser.zero_grad()
            (first + weight * second).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            total += np.array([float(first.detach()), float(second.detach())]) * len(some)
        history.append((float(total[0]) / images, float(total[1]) / images))
    return history
