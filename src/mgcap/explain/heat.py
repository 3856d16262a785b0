r"""Which positions of the local features are evidence for a class.

With the features :math:`A` (channels x positions) of a view and the gradient :math:`g = \partial y/\partial A` of a
logit (or of the difference of two) through reduction, embedding, maximum over rotations, spectral layer and head:

* Grad-CAM (Selvaraju et al. 2017): :math:`\mathrm{relu}\sum_c \bar g_c A_{cx}` with the mean gradient of each channel;
* Grad-CAM++ (Chattopadhay et al. 2018): channels weighted by
  :math:`\sum_x \alpha_{cx}\,\mathrm{relu}(g_{cx}),\; \alpha = g^2 / (2g^2 + g^3\sum_x A)`;
* local: :math:`\mathrm{relu}\sum_c g_{cx} A_{cx}`, what each position adds. Second-order pooling gives every position a
  gradient of its own, :math:`M f_x` for a symmetric :math:`M`, which the mean of Grad-CAM replaces by :math:`M\bar f`.

The spectral layer's gradient is exact where eigenvalues coincide, so the maps are finite there too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mgcap.inference.forward import Answer, answer, see
from mgcap.model import MGCAP

METHODS = ("gradcam", "gradcam++", "local")


def grad_cam(features: Tensor, gradient: Tensor) -> Tensor:
    """``[..., C, h, w]`` twice ``-> [..., h, w]``."""
    weights = gradient.mean((-2, -1), keepdim=True)
    return (weights * features).sum(-3).relu()


def grad_cam_plus_plus(features: Tensor, gradient: Tensor) -> Tensor:
    """``[..., C, h, w]`` twice ``-> [..., h, w]``."""
    square = gradient.square()
    below = 2 * square + features.sum((-2, -1), keepdim=True) * square * gradient
    alpha = torch.where(below.abs() > 1e-30, square / below, torch.zeros_like(below))
    weights = (alpha * gradient.relu()).sum((-2, -1), keepdim=True)
    return (weights * features).sum(-3).relu()


def local_contribution(features: Tensor, gradient: Tensor) -> Tensor:
    """``[..., C, h, w]`` twice ``-> [..., h, w]``."""
    return (gradient * features).sum(-3).relu()


_MAPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gradcam": grad_cam,
    "gradcam++": grad_cam_plus_plus,
    "local": local_contribution,
}


def feature_gradients(
    model: MGCAP, features: Sequence[Tensor], score: Callable[[Tensor], Tensor]
) -> tuple[list[Tensor], Answer, Tensor]:
    """The gradient of a score of the logits with respect to local features.

    Args:
        model: Fitted.
        features: For each granularity ``[R, C, N]``.
        score: From logits ``[K]`` to one number.

    Returns:
        Gradients like the features, what the model says, and winners ``[S, D, D]``.
    """
    with torch.enable_grad():
        leaves = [own.detach().clone().float().requires_grad_(True) for own in features]
        seen = see(model, [[own[None]] for own in leaves], winners=True)
        found = answer(model, seen)
        gradients = torch.autograd.grad(score(found.logits[0]), leaves)
    assert seen.winners is not None
    said = found._replace(descriptors=found.descriptors.detach(), logits=found.logits.detach())
    return list(gradients), said, seen.winners[0]


def heat_map(method: str, features: Tensor, gradient: Tensor) -> Tensor:
    """``[..., C, N]`` twice, N the positions of a square, ``-> [..., h, w]``."""
    side = round(features.shape[-1] ** 0.5)
    square = (*features.shape[:-1], side, side)
    return _MAPS[method](features.reshape(square), gradient.reshape(square))
