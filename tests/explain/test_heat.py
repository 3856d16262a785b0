from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam
from torch import Tensor, nn

from mgcap import MGCAP, MGCAPConfig
from mgcap.explain.heat import (
    METHODS,
    feature_gradients,
    grad_cam,
    grad_cam_plus_plus,
    heat_map,
    local_contribution,
)
from mgcap.inference.forward import answer, see


def _model(**changes: Any) -> MGCAP:
    torch.manual_seed(0)
    options = {"backbone": "alexnet", "size": 64, "rotations": 3, "granularities": (1.0, 0.8), "num_classes": 4}
    return MGCAP(MGCAPConfig(**{**options, "channels": 8, **changes})).eval()


def _features(model: MGCAP) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(3, model.reduction.channels_in, 9, generator=generator) for _ in model.config.granularities]


def _logits(model: MGCAP, features: list[Tensor]) -> Tensor:
    return answer(model, see(model, [[own[None]] for own in features])).logits[0]


class _Rest(nn.Module):
    """The model behind its features, as captum wants to see it."""

    def __init__(self, model: MGCAP) -> None:
        super().__init__()
        self.model, self.entry = model, nn.Identity()

    def forward(self, features: Tensor) -> Tensor:
        both = self.entry(features).flatten(2).unflatten(0, (len(self.model.config.granularities), -1))
        return _logits(self.model, list(both))[None]


def test_grad_cam_is_captums() -> None:
    model = _model()
    features = _features(model)
    gradients, found, _ = feature_gradients(model, features, lambda out: out[2])
    stacked = torch.cat(features).reshape(6, -1, 3, 3)
    rest = _Rest(model)
    expected = LayerGradCam(rest, rest.entry).attribute(stacked, target=2, relu_attributions=True)
    ours = torch.cat([heat_map("gradcam", f, g) for f, g in zip(features, gradients, strict=True)])
    assert ours.max() > 0
    torch.testing.assert_close(ours, expected[:, 0].detach())
    torch.testing.assert_close(found.logits, rest(stacked).detach())


def test_grad_cam_plus_plus_as_its_paper_writes_it() -> None:
    """Loops over channels and positions in float64."""
    rng = np.random.default_rng(0)
    features, gradient = rng.random((3, 2, 2)), rng.normal(size=(3, 2, 2))
    expected = np.zeros((2, 2))
    for c in range(3):
        weight = 0.0
        for i in range(2):
            for j in range(2):
                g = gradient[c, i, j]
                below = 2 * g**2 + sum(features[c, a, b] * g**3 for a in range(2) for b in range(2))
                weight += g**2 / below * max(g, 0)
        expected += weight * features[c]
    ours = grad_cam_plus_plus(torch.from_numpy(features), torch.from_numpy(gradient))
    np.testing.assert_allclose(ours.numpy(), np.maximum(expected, 0), rtol=1e-10)


def test_no_gradient_no_heat() -> None:
    features = torch.rand(2, 5, 3, 3)
    for method in (grad_cam, grad_cam_plus_plus, local_contribution):
        assert not method(features, torch.zeros_like(features)).any()


@pytest.mark.parametrize("normalisation", ["sqrt", "log", "bilinear"])
@pytest.mark.parametrize("method", METHODS)
def test_heat_is_finite_where_eigenvalues_coincide(normalisation: str, method: str) -> None:
    """Constant features have a matrix of rank one: all other eigenvalues are the ridge."""
    model = _model(normalisation=normalisation, reduction="none", channels=None)
    features = [torch.ones(3, model.reduction.channels_in, 9) for _ in range(2)]
    gradients, _, _ = feature_gradients(model, features, lambda out: out[0] - out[1])
    for own, gradient in zip(features, gradients, strict=True):
        assert torch.isfinite(gradient).all() and torch.isfinite(heat_map(method, own, gradient)).all()


def test_the_gradient_is_that_of_finite_differences() -> None:
    model = _model().double()
    features = [f.double() for f in _features(model)]
    leaves = [f.clone().requires_grad_(True) for f in features]
    _logits(model, leaves)[1].backward()
    direction = [torch.randn_like(f) for f in features]
    step = 1e-6

    def moved(by: float) -> float:
        there = [f + by * d for f, d in zip(features, direction, strict=True)]
        return float(_logits(model, there)[1].detach())

    slope = sum((leaf.grad * d).sum() for leaf, d in zip(leaves, direction, strict=True) if leaf.grad is not None)
    assert (moved(step) - moved(-step)) / (2 * step) == pytest.approx(float(slope), rel=1e-4)
