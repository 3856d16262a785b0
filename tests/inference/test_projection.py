"""Descriptors in fewer numbers: heads go there and back, and what ships is read as it was written."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from mgcap import MGCAP, MGCAPConfig
from mgcap.inference import projection as module
from mgcap.inference.projection import Projection, projection_for, shipped_projection, write_projection
from mgcap.inference.universal import UniversalDescriptor, shipped_descriptors

LENGTH, AXES, CLASSES = 30, 7, 4


@pytest.fixture
def projection() -> Projection:
    random = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(LENGTH, AXES, generator=random)).Q.T.contiguous()
    return Projection(torch.randn(LENGTH, generator=random), axes)


def _head(length: int) -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(length, CLASSES)


def _descriptors() -> Tensor:
    return torch.randn(11, LENGTH, generator=torch.Generator().manual_seed(2))


def test_a_folded_head_says_the_same_of_what_the_axes_keep(projection: Projection) -> None:
    head = _head(LENGTH)
    weight, bias = projection.fold(head)
    assert projection.mean is not None and projection.axes is not None
    vectors = projection(_descriptors())
    kept = projection.mean + vectors @ projection.axes  # the descriptors without what the axes leave out
    torch.testing.assert_close(vectors @ weight.T + bias, head(kept).detach(), atol=1e-5, rtol=0)


def test_an_unfolded_head_says_the_same_of_descriptors(projection: Projection) -> None:
    head = _head(AXES)
    weight, bias = projection.unfold(head.weight.detach(), head.bias.detach())
    found = _descriptors() @ weight.T + bias
    torch.testing.assert_close(found, head(projection(_descriptors())).detach(), atol=1e-5, rtol=0)
    whole = nn.Linear(LENGTH, CLASSES)
    whole.load_state_dict({"weight": weight, "bias": bias})
    for there, before in zip(projection.fold(whole), (head.weight, head.bias), strict=True):
        torch.testing.assert_close(there, before.detach(), atol=1e-5, rtol=0)


def test_without_axes_nothing_changes() -> None:
    head, nothing = _head(LENGTH), Projection()
    assert nothing.length(LENGTH) == LENGTH and nothing.fingerprint == ""
    assert nothing(_descriptors()).equal(_descriptors())
    for weight, bias in (nothing.fold(head), nothing.unfold(head.weight, head.bias)):
        assert weight.equal(head.weight) and bias.equal(head.bias)
    assert shipped_projection("") is not None


def test_models_without_a_shipped_projection_keep_their_descriptors() -> None:
    assert projection_for(MGCAP(MGCAPConfig(backbone="alexnet", channels=4, size=64))).axes is None
    assert shipped_projection("0123456789abcdef") is None


@pytest.fixture
def compact(monkeypatch: pytest.MonkeyPatch) -> MGCAP:
    """The default model but for the weights of its network, which need not be fetched."""
    (universal,) = [found for found in shipped_descriptors() if found.suits(MGCAPConfig())]
    monkeypatch.setattr(module, "universal_for", lambda model: universal)
    return _with_axes(MGCAPConfig(), universal)


def _with_axes(config: MGCAPConfig, universal: UniversalDescriptor) -> MGCAP:
    model = MGCAP(config)
    universal.install(model)
    return model


def test_the_shipped_one_is_for_the_universal_descriptor(compact: MGCAP) -> None:
    found = projection_for(compact)
    assert found.axes is not None and found.axes.shape == (512, compact.head.in_features)
    product = found.axes @ found.axes.T
    torch.testing.assert_close(product, torch.eye(512), atol=0.02, rtol=0)  # up to the rounding to 8 bits
    same = shipped_projection(found.fingerprint)
    assert same is not None and same.axes is not None and same.axes.equal(found.axes)
    other = compact.config.model_copy(update={"normalisation": "log"})
    assert projection_for(_with_axes(other, shipped_descriptors()[0])).axes is None
    assert projection_for(MGCAP(MGCAPConfig())).axes is None  # it has no axes yet


def test_what_is_written_is_read(compact: MGCAP, tmp_path: Path) -> None:
    length = compact.head.in_features
    axes = torch.linalg.qr(torch.randn(length, 5, generator=torch.Generator().manual_seed(3))).Q.T.contiguous()
    write_projection(tmp_path / "one.projection", Projection(torch.ones(length), axes), compact)
    _, _, found = module._read(tmp_path / "one.projection")
    assert found.axes is not None and found.mean is not None
    assert found.mean.equal(torch.ones(length))
    assert float((found.axes - axes).abs().max()) <= float(axes.abs().max()) / 127 / 2 * 1.001
