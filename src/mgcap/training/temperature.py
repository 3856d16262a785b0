"""Probabilities that mean what they say: one number by which logits are divided (Guo et al. 2017)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.model import MGCAP


def fit_temperature(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> float:
    """The temperature that minimises the cross-entropy of logits / temperature on held-out images.

    Args:
        logits: ``[n, K]``.
        targets: Classes by number, or shares of the classes ``[n, K]``.
        smoothing: Share of each label that is spread over all classes.
    """
    logits = logits.double()
    log_t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([log_t], max_iter=100, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(logits / log_t.exp(), targets, label_smoothing=smoothing)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimiser.step(loss)  # type: ignore[no-untyped-call]
    return float(log_t.detach().clamp(-5, 5).exp())


@torch.no_grad()
def cool(model: MGCAP, probabilities: Tensor, targets: Tensor) -> tuple[float, Tensor]:
    """Divide the logits of a model by the temperature that fits images which it did not learn from.

    A network that learnt smoothed labels is far less sure than it is right. No label changes by this. That all of n
    images are right does not make the model surer than n images can show: their labels are smoothed as by Platt (1999).

    Args:
        model: Its head is changed.
        probabilities: ``[n, K]`` of those images before.
        targets: Their classes by number.

    Returns:
        The temperature and the probabilities after.
    """
    logits = probabilities.double().clamp_min(1e-300).log()
    temperature = fit_temperature(logits, targets, smoothing=1 / (len(targets) + 2))
    for parameter in model.head.parameters():
        parameter.div_(temperature)
    return temperature, (logits / temperature).softmax(1)
