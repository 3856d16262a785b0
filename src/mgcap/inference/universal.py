"""The universal descriptor: principal axes and int8 constants, fitted once to unlabelled scenes, that ship with us.

It knows no classes and none of the user's images. So descriptors mean the same in every model, split, raster and
machine, and one row in the feature cache serves them all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
from pydantic import BaseModel, ConfigDict
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mgcap.backbones.pretrained import state_hash
from mgcap.config import MGCAPConfig
from mgcap.inference.engines.torch import Stamp, weight_stamp
from mgcap.model import MGCAP
from mgcap.persistence.files import atomic_path

_KEY, _INT8 = "mgcap.descriptor", "int8."
#: Hashes of networks while their weights stay as they are: they are asked for with every image.
_HASHES: WeakKeyDictionary[nn.Module, tuple[Stamp, str]] = WeakKeyDictionary()


class Card(BaseModel):
    """What a descriptor file says of itself.

    Attributes:
        name: Of the descriptor.
        version: Raised whenever its numbers change.
        backbone: The network it belongs to.
        layer: The layer of it that is tapped.
        activated: Whether behind its activation.
        size: Side of the views that the int8 constants were found on.
        network: Hash of the network's weights.
        fitted_to: The scenes that it was fitted to.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    version: int
    backbone: str
    layer: str
    activated: bool
    size: int
    network: str
    fitted_to: str


@dataclass(frozen=True, eq=False)
class UniversalDescriptor:
    """Axes and constants of a descriptor.

    Attributes:
        card: What it is.
        basis: ``[C', C]``, the principal axes by falling variance.
        mean: ``[C]``.
        int8: Constants of the int8 engine, see :class:`mgcap.inference.engines.openvino.OpenVinoEngine`.
    """

    card: Card
    basis: Tensor
    mean: Tensor
    int8: dict[str, Tensor]

    @property
    def fingerprint(self) -> str:
        """A hash of all its numbers."""
        return state_hash({"basis": self.basis, "mean": self.mean, **self.int8})

    def suits(self, config: MGCAPConfig) -> bool:
        """Whether a model of this configuration can use it, if its network has the same weights."""
        own = self.card.backbone, self.card.layer, self.card.activated
        wanted = config.backbone, config.layer, config.activated
        return config.reduction == "pca" and own == wanted and (config.channels or 0) <= len(self.basis)

    def belongs_to(self, model: MGCAP) -> bool:
        """Whether a model can use it: by its configuration and the weights of its networks."""
        return self.suits(model.config) and all(
            _network_hash(backbone) == self.card.network for backbone in model.backbones
        )

    def install(self, model: MGCAP) -> None:
        """Give a model these axes; one with fewer channels gets the first of them."""
        reduction = model.reduction
        reduction.basis.copy_(self.basis[: reduction.channels])
        reduction.mean.copy_(self.mean)
        reduction.fitted.fill_(True)

    def given_to(self, model: MGCAP) -> bool:
        """Whether a model that can use it has these axes."""
        own = model.reduction.basis.detach().cpu()
        return torch.equal(own, self.basis[: len(own)].to(own.dtype))

    def provenance(self) -> dict[str, str | int]:
        """What a model that uses it says of it."""
        return {"name": self.card.name, "version": self.card.version, "fingerprint": self.fingerprint[:16]}


def _network_hash(network: nn.Module) -> str:
    stamp = weight_stamp([network])
    kept = _HASHES.get(network)
    if kept is None or kept[0] != stamp:
        kept = _HASHES[network] = stamp, state_hash(network.state_dict())
    return kept[1]


def write_descriptor(path: Path, descriptor: UniversalDescriptor) -> None:
    """Write a descriptor to a file."""
    tensors = {"basis": descriptor.basis.contiguous(), "mean": descriptor.mean.contiguous()}
    tensors |= {f"{_INT8}{name}": constants for name, constants in descriptor.int8.items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, {_KEY: json.dumps(descriptor.card.model_dump())})


def read_descriptor(path: Path) -> UniversalDescriptor:
    """Read a descriptor from a file."""
    with safe_open(path, "pt") as file:
        card = Card.model_validate_json((file.metadata() or {})[_KEY])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    int8 = {name.removeprefix(_INT8): t for name, t in tensors.items() if name.startswith(_INT8)}
    return UniversalDescriptor(card, tensors["basis"], tensors["mean"], int8)


@cache
def shipped_descriptors() -> tuple[UniversalDescriptor, ...]:
    """The descriptors that come with the package."""
    folder = Path(str(resources.files("mgcap.persistence.shipped")))
    return tuple(read_descriptor(path) for path in sorted(folder.glob("*.descriptor")))


def universal_for(model: MGCAP) -> UniversalDescriptor | None:
    """The shipped descriptor that a model can use, if there is one."""
    return next((found for found in shipped_descriptors() if found.belongs_to(model)), None)
