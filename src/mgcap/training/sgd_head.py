"""The first stage as the paper has it: the head alone, by stochastic gradient descent on frozen descriptors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap.errors import DataError
from mgcap.training.recipe import Finetune
from mgcap.training.softmax import NOT_FINITE


def train_head(
    descriptors: Tensor,
    targets: Sequence[int],
    weights: Tensor,
    recipe: Finetune,
    side: int = 1,
    seed: int = 0,
    on_step: Callable[[int], None] = lambda n: None,
) -> tuple[Tensor, Tensor]:
    """Train a linear head from zero.

    Args:
        descriptors: ``[n, d]``.
        targets: Classes by number.
        weights: The weight of each class in the loss.
        recipe: Batch, rates and epochs.
        side: Of the matrices that the descriptors come from, see :meth:`mgcap.Finetune.head_scale`.
        seed: Of the order.
        on_step: Is told of each epoch.

    Returns:
        Weight ``[K, d]`` and bias ``[K]``.

    Raises:
        DataError: If the descriptors are not finite.
    """
    if not bool(descriptors.mean(0).isfinite().all()):
        raise DataError(NOT_FINITE)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.as_tensor(targets)
    weight = nn.Parameter(torch.zeros(len(weights), descriptors.shape[1]))
    bias = nn.Parameter(torch.zeros(len(weights)))
    scale = recipe.head_scale(side)
    groups = [
        {"params": [weight], "lr": recipe.head_lr * scale, "weight_decay": recipe.weight_decay / scale},
        {"params": [bias], "weight_decay": recipe.weight_decay},
    ]
    optimiser = torch.optim.SGD(groups, recipe.head_lr, recipe.momentum)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, recipe.head_decay_epochs, recipe.decay)
    for _ in range(recipe.head_epochs):
        for batch in torch.split(torch.randperm(len(labels), generator=generator), recipe.batch):
            optimiser.zero_grad()
            logits = F.linear(descriptors[batch], weight, bias)
            loss = F.cross_entropy(logits, labels[batch], weights, label_smoothing=recipe.label_smoothing)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        schedule.step()
        on_step(1)
    return weight.detach(), bias.detach()
