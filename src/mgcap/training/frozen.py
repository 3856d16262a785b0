"""Training with a frozen backbone: PCA of the channels, descriptors once, then the exact head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from mgcap.data.stream import Item, OnError, image_batches
from mgcap.engines.openvino import CALIBRATION_VIEWS
from mgcap.model import MGCAP
from mgcap.reduction import FeatureMoments

#: Training images that the PCA sees, at one rotation each: 50,000 local features for 128 axes.
PCA_IMAGES = 256
#: Images that are looked at together.
BATCH = 8

Step = Callable[[int], None]


@torch.inference_mode()
def fit_reduction(
    model: MGCAP, items: Sequence[Item], seed: int = 0, on_step: Step = lambda n: None, batch: int = BATCH
) -> None:
    """Fit the PCA on local features of (a seeded choice of) the training images."""
    moments = FeatureMoments(model.reduction.channels_in)
    chosen = np.random.default_rng(seed).permutation(len(items))[:PCA_IMAGES]
    device = model.head.weight.device
    angles = model.config.angles
    for number, (_, images) in enumerate(image_batches([items[i] for i in chosen], batch, lambda i, e: None)):
        for granularity in range(len(model.config.granularities)):
            moments.add(model.features_at(images.to(device), granularity, [angles[number % len(angles)]]))
        on_step(len(images))
    model.reduction.fit(moments)


@torch.inference_mode()
def calibration_views(model: MGCAP, items: Sequence[Item], seed: int = 0) -> list[Tensor]:
    """Normalised views of (a seeded choice of) the training images, to quantise with: every rotation gets its turn."""
    c = model.config
    chosen = np.random.default_rng(seed).permutation(len(items))[:CALIBRATION_VIEWS]
    views: list[Tensor] = []
    for _, images in image_batches([items[i] for i in chosen], 1, lambda i, e: None):
        turn = len(views)
        angle = c.angles[turn % len(c.angles)]
        view = model.views_at(images.to(model.mean.device), turn % len(c.granularities), [angle])[0, 0]
        views.append(view.cpu().contiguous())
    return views


@torch.inference_mode()
def extract_descriptors(
    model: MGCAP, items: Sequence[Item], on_error: OnError, on_step: Step = lambda n: None, batch: int = BATCH
) -> tuple[list[int], Tensor]:
    """Descriptors of images.

    Args:
        model: In evaluation mode.
        items: Images.
        on_error: Is told of each image that cannot be read; it is passed over.
        on_step: Is told how many images were done.
        batch: Images at once.

    Returns:
        The indices of the images that could be read, and their descriptors ``[n, d]`` on the CPU.
    """
    device = model.head.weight.device
    kept: list[int] = []
    rows = torch.empty(len(items), model.head.in_features)
    for indices, images in image_batches(items, batch, on_error):
        rows[len(kept) : len(kept) + len(indices)] = model.descriptor(images.to(device)).cpu()
        kept += indices
        on_step(len(indices))
    return kept, rows[: len(kept)]
