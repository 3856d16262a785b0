from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from mgcap import MGCAP, MGCAPConfig
from mgcap.training.gradient_cache import bytes_of_a_view, choose_chunk, free_memory, gradient_step


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
    again, logits = gradient_step(model, images, lambda out: F.cross_entropy(out, targets), chunk)
    assert again.item() == pytest.approx(loss.item(), rel=1e-5) and not logits.requires_grad
    gradients = dict(model.named_parameters())
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None and gradients[name].grad is not None, name
        error = (gradients[name].grad - parameter.grad).norm() / parameter.grad.norm().clamp_min(1e-12)
        assert error < 2e-3, (name, error)


def test_an_engine_is_not_asked() -> None:
    """The gradient belongs to the network itself, not to its int8 shadow."""
    model = _model()

    class Broken:
        overlaps = False

        def features(self, views: torch.Tensor, granularity: int) -> torch.Tensor:
            raise AssertionError

    model.engine = Broken()
    gradient_step(model, torch.rand(1, 3, 64, 64), lambda out: out.sum(), 4)


def test_a_frozen_backbone_stays_without_gradient() -> None:
    model = _model()
    model.backbones.requires_grad_(False)
    gradient_step(model, torch.rand(2, 3, 64, 64), lambda out: out.square().sum(), 4)
    assert model.head.weight.grad is not None and model.reduction.basis.grad is not None
    assert all(p.grad is None for p in model.backbones.parameters())


def test_the_chunk_follows_the_memory() -> None:
    model = _model()
    each = bytes_of_a_view(model)
    assert 10_000 < each < 50_000_000
    assert choose_chunk(model, 0) == 1
    assert choose_chunk(model, 20 * each) == 8
    assert choose_chunk(model, 10**15) == 256
    assert free_memory(torch.device("cpu")) > 1 << 20
