"""Descriptors in a few hundred numbers: a projection to principal axes, which ships with the universal descriptor.

Vectors of a raster's cells are kept so. A head for whole descriptors is applied to projected ones by projecting its
weights, too: what it says then differs by what the axes leave out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mgcap.backbones.pretrained import state_hash
from mgcap.inference.universal import universal_for
from mgcap.model import MGCAP
from mgcap.persistence.files import atomic_path

_DESCRIPTOR, _SCALE, _CONFIGURATION = "mgcap.descriptor", "scale", "mgcap.configuration"

#: What the vector depends on behind the universal axes; models that differ in it have other vectors.
_FIELDS = (
    "field_of_view", "granularities", "rotations", "frame", "channels", "feature_norm", "embedding", "unbiased",
    "ridge", "rotation_pooling", "fusion", "fusion_norm", "normalisation", "clip", "spectral_scale", "vector",
    "signed_root",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Projection:
    """From descriptors ``[n, d]`` to vectors ``[n, p]``.

    Attributes:
        mean: ``[d]``.
        axes: ``[p, d]``, with orthonormal rows; None keeps descriptors as they are.
    """

    mean: Tensor | None = None
    axes: Tensor | None = None

    @property
    def fingerprint(self) -> str:
        """A hash of all its numbers; empty if there are none."""
        if self.mean is None or self.axes is None:
            return ""
        return state_hash({"mean": self.mean, "axes": self.axes})[:16]

    def __call__(self, descriptors: Tensor) -> Tensor:
        """Project descriptors."""
        if self.mean is None or self.axes is None:
            return descriptors
        return (descriptors - self.mean) @ self.axes.T

    def length(self, descriptor: int) -> int:
        """Numbers of a vector."""
        return descriptor if self.axes is None else len(self.axes)

    def fold(self, head: nn.Linear) -> tuple[Tensor, Tensor]:
        """Weights ``[K, p]`` and bias ``[K]`` that say of vectors what a head says of descriptors."""
        weight, bias = head.weight.detach().cpu(), head.bias.detach().cpu()
        if self.mean is None or self.axes is None:
            return weight, bias
        return weight @ self.axes.T, bias + weight @ self.mean

    def unfold(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Weights ``[K, d]`` and bias that say of descriptors what ``[K, p]`` and a bias say of vectors."""
        if self.mean is None or self.axes is None:
            return weight, bias
        weight = weight @ self.axes
        return weight, bias - weight @ self.mean


def configuration_of(model: MGCAP) -> str:
    """What a projection says of the models that it is for."""
    return str(model.config.model_dump(mode="json", include=set(_FIELDS)))


def write_projection(path: Path, projection: Projection, model: MGCAP) -> None:
    """Write a projection to a file: its axes in 8 bits, each with a scale."""
    universal = universal_for(model)
    assert universal is not None and projection.mean is not None and projection.axes is not None
    scale = projection.axes.abs().amax(1, keepdim=True) / 127
    tensors = {
        "mean": projection.mean.half(),
        "axes": (projection.axes / scale).round().to(torch.int8),
        _SCALE: scale.float(),
    }
    notes = {_DESCRIPTOR: universal.fingerprint, _CONFIGURATION: configuration_of(model)}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, notes)


@cache
def _read(path: Path) -> tuple[str, str, Projection]:
    with safe_open(path, "pt") as file:
        notes = file.metadata() or {}
        axes = file.get_tensor("axes").float() * file.get_tensor(_SCALE)
        projection = Projection(file.get_tensor("mean").float(), axes)
    return notes[_DESCRIPTOR], notes[_CONFIGURATION], projection


def projection_for(model: MGCAP) -> Projection:
    """The shipped projection for a model's descriptors; one that changes nothing where there is none."""
    universal = universal_for(model)
    if universal is None or not universal.given_to(model):
        return Projection()
    for fingerprint, configuration, projection in map(_read, _shipped()):
        if (fingerprint, configuration) == (universal.fingerprint, configuration_of(model)):
            return projection
    return Projection()


def shipped_projection(fingerprint: str) -> Projection | None:
    """The shipped projection with a fingerprint; for an empty one that which changes nothing."""
    known = [Projection(), *(projection for _, _, projection in map(_read, _shipped()))]
    return next((projection for projection in known if projection.fingerprint == fingerprint), None)


def _shipped() -> list[Path]:
    return sorted(Path(str(resources.files("mgcap.persistence.shipped"))).glob("*.projection"))
