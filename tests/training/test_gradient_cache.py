from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from mgcap import MGCAP, MGCAPConfig
from mgcap.training.gradient_cache import (
    Choice,
    SampledViews,
    Trunk,
    bytes_of_a_view,
    choose_chunk,
    free_memory,
    gradient_step,
    logits_of,
)


def _model(**changes: object) -> MGCAP:
    torch.manual_seed(0)
    options = {
        "backbone": "alexnet",
        "size": 64,
        "rotations": 3,
        "granularities": (1.0, 0.8),
        "reduction": "learnt",
        "channels": 6,
        "num_classes": 4,
        **changes,
    }
    return MGCAP(MGCAPConfig(**options)).eval()  # type: ignore[arg-type]


def _step(
    model: MGCAP, images: torch.Tensor, loss: Callable[[torch.Tensor], torch.Tensor], chunk: int, first: str = "all"
) -> tuple[torch.Tensor, torch.Tensor]:
    trunk = Trunk.of(model, first)
    return gradient_step(model, SampledViews(model, images, trunk), trunk, loss, chunk)


@pytest.mark.parametrize("chunk", [1, 4, 100])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"share_granularities": False},
        {"rotation_pooling": "mean", "normalisation": "log"},
        {"reduction": "none", "channels": None, "gradient": "paper"},
        {"reduction": "pca"},
    ],
)
def test_the_gradient_of_the_plain_graph(chunk: int, changes: dict[str, object]) -> None:
    model = _model(**changes)
    plain = copy.deepcopy(model)
    images, targets = torch.rand(3, 3, 70, 70), torch.tensor([0, 1, 3])
    loss = F.cross_entropy(plain(images), targets)
    loss.backward()
    again, logits = _step(model, images, lambda out: F.cross_entropy(out, targets), chunk)
    assert again.item() == pytest.approx(loss.item(), rel=1e-5) and not logits.requires_grad
    gradients = dict(model.named_parameters())
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None and gradients[name].grad is not None, name
        error = (gradients[name].grad - parameter.grad).norm() / parameter.grad.norm().clamp_min(1e-12)
        assert error < 2e-3, (name, error)


@pytest.mark.parametrize("chunk", [2, 100])
def test_a_step_over_some_views_is_that_of_a_model_without_the_others(chunk: int) -> None:
    model, alone = _model(granularities=(1.0, 0.9, 0.8), rotations=4), _model(granularities=(0.9,), rotations=2)
    images, targets = torch.rand(3, 3, 70, 70), torch.tensor([0, 1, 3])
    F.cross_entropy(alone(images), targets).backward()
    trunk = Trunk.of(model)
    views = SampledViews(model, images, trunk)
    gradient_step(model, views, trunk, lambda out: F.cross_entropy(out, targets), chunk, choice=Choice([1], [0, 2]))
    for own, other in zip(model.parameters(), alone.parameters(), strict=True):
        assert own.grad is not None and other.grad is not None
        assert (own.grad - other.grad).norm() <= 2e-3 * other.grad.norm().clamp_min(1e-12)


def test_a_frozen_backbone_stays_without_gradient() -> None:
    model = _model()
    model.backbones.requires_grad_(False)
    _step(model, torch.rand(2, 3, 64, 64), lambda out: out.square().sum(), 4)
    assert model.head.weight.grad is not None and model.reduction.basis.grad is not None
    assert all(p.grad is None for p in model.backbones.parameters())


@pytest.mark.parametrize("chunk", [2, 100])
@pytest.mark.parametrize("backbone, first", [("alexnet", "conv4"), ("resnet18", "stage4")])
def test_only_later_layers_are_trained(backbone: str, first: str, chunk: int) -> None:
    model = _model(backbone=backbone)
    plain = copy.deepcopy(model)
    images, targets = torch.rand(2, 3, 64, 64), torch.tensor([0, 3])
    F.cross_entropy(plain(images), targets).backward()
    trunk = Trunk.of(model, first)
    model.backbones.requires_grad_(False)
    for part in trunk.trained:
        part.requires_grad_(True)
    _step(model, images, lambda out: F.cross_entropy(out, targets), chunk, first)
    expected = dict(plain.named_parameters())
    trained = {name: p for name, p in model.named_parameters() if p.grad is not None}
    assert 3 < len(trained) < len(expected)
    assert len(trained) == sum(p.requires_grad for p in model.parameters())
    for name, parameter in trained.items():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=2e-3, atol=1e-6)


def test_logits_are_those_of_the_model() -> None:
    model = _model()
    images = torch.rand(2, 3, 64, 64)
    trunk = Trunk.of(model, "conv3")
    torch.testing.assert_close(
        logits_of(model, SampledViews(model, images, trunk), trunk, 5), model(images).detach(), rtol=1e-4, atol=1e-5
    )


def test_a_layer_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="allowed are all, conv1, conv2, conv3, conv4, conv5"):
        Trunk.of(_model(), "stage4")


def test_the_chunk_follows_the_memory() -> None:
    model = _model()
    trunk, later = Trunk.of(model), Trunk.of(model, "conv5")
    each = bytes_of_a_view(model, trunk)
    assert 10_000 < each < 50_000_000 and bytes_of_a_view(model, later) < each / 4
    assert choose_chunk(model, trunk, 0) == 1
    assert choose_chunk(model, trunk, 20 * each) == 8
    assert choose_chunk(model, trunk, 10**15) == 256
    assert free_memory(torch.device("cpu")) > 1 << 20
