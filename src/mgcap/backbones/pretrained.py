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
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from mgcap.backbones import BACKBONES, find_backbone
from mgcap.backbones.architecture import portable_name
from mgcap.backbones.readers import (
    State,
    one_line,
    read_keras_h5,
    read_safetensors,
    read_torch,
)
from mgcap.backbones.record import Published, Reader
from mgcap.errors import WeightsError, missing
from mgcap.persistence.downloads import Say, fetch_first
from mgcap.persistence.files import atomic_path, cache_dir, sha256_of

#: Where no weights can be fetched.
_ADVICE = "give a file with `weights=FILE` instead"


@dataclass(frozen=True)
class Weights:
    """A backbone's state dict with where it came from."""

    name: str
    state: State
    sha256: str
    source: str


def state_hash(state: Mapping[str, Tensor]) -> str:
    """SHA-256 over names, shapes, types and bytes, whatever the order or the file they were in."""
    found = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        found.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _published(name: str) -> Published:
    found = BACKBONES[name].weights if name in BACKBONES else None
    if found is None:
        raise WeightsError(f"no weights are catalogued for '{name}'; give a file with `weights=FILE`")
    return found


def is_stock(name: str, sha256: str) -> bool:
    """Whether tensors of this hash are the published ones of a backbone."""
    found = BACKBONES[name].weights if name in BACKBONES else None
    return found is not None and found.sha256 == sha256


def cached_path(name: str) -> Path:
    """Where a backbone's weights are, or will be: its tensors, or the published file as it was downloaded."""
    return cache_dir() / "weights" / f"{name}.{'safetensors' if _published(name).sha256 else 'download'}"


def is_cached(name: str) -> bool:
    """Whether weights are on disk (their hash is checked when they are loaded)."""
    return cached_path(name).is_file()


def load_weights(name: str, say: Say = lambda line: None) -> Weights:
    """ImageNet weights of a backbone, from the cache or else from the first source that answers.

    Args:
        name: A backbone of the registry, or of a library that has weights of its own.
        say: Takes a line of progress.
    """
    if name not in BACKBONES and (fetch := _fetch_of(name)) is not None:
        say(f"Loading {name} ...")
        state = fetch()
        return Weights(name, state, state_hash(state), portable_name(name))
    published = _published(name)
    pinned, attempts = published.sha256, published.sources
    path = cached_path(name)
    if path.is_file():
        try:
            return _from_tensors(name, path) if pinned else _from_download(name, path)
        except WeightsError as error:
            say(f"{error}; fetching it again")
    if not attempts:
        raise WeightsError(f"no pinned download is known for {name}; give a file with `weights=FILE`")

    def fetched(read: Reader) -> Callable[[Path], Weights]:
        def checked(file: Path) -> Weights:
            state = _own_part(read(file), name)
            found = state_hash(state)
            if pinned and found != pinned:
                raise WeightsError(f"{file.name} does not hold the numbers of {name} that were pinned")
            _keep(path, state if pinned else file, say)
            return Weights(name, state, found, "")

        return checked

    weights, source = fetch_first(f"{name} weights", [(src, fetched(read)) for src, read in attempts], say, _ADVICE)
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
        raise WeightsError(missing("weights file", path))
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


def _fetch_of(name: str) -> Callable[[], State] | None:
    try:
        return find_backbone(name).fetch
    except ValueError as error:
        raise WeightsError(f"no weights are catalogued for '{name}': {error}") from error


def _layout(name: str) -> State:
    """The state dict of the whole backbone, without its numbers."""
    record = find_backbone(name)
    try:
        with torch.device("meta"):
            return record.whole_network().state_dict()
    except (NotImplementedError, RuntimeError, ValueError):  # some networks look at numbers when they are built
        return record.whole_network().state_dict()


def _own_part(state: State, name: str) -> State:
    """What of a state dict belongs to the whole backbone; classifiers and the like are left out."""
    own = _layout(name)
    return {key: tensor for key, tensor in state.items() if key in own}


def _from_tensors(name: str, path: Path) -> Weights:
    """Weights whose tensors are pinned, from the cache, where nobody vouches for the file.

    A safetensors file ends with the tensors' bytes, wider types first and then by name. So the backbone itself says
    what lies where, and the file's header, which no hash covers, is never looked at.
    """
    pinned, attempts = _published(name).sha256, _published(name).sources
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
    for source, read in _published(name).sources:
        if found == source.sha256:
            state = _own_part(read(path), name)
            return Weights(name, state, state_hash(state), str(source))
    raise WeightsError(f"{path} is not the file it should be")
