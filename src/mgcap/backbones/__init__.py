"""Networks f_e (Eq. 3), cut at the layer that is tapped: one record for each.

Parameter names are torchvision's, so its state dicts load as they are; what lies behind the tap is dropped.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from torch import nn

from mgcap.backbones import googlenet, inception, mobilenet, own, resnet, vgg_alexnet
from mgcap.backbones.architecture import PREFIX as HF
from mgcap.backbones.record import Backbone
from mgcap.backbones.tapped import Tapped, split_backbone
from mgcap.backbones.timm import PREFIX as TIMM
from mgcap.backbones.timm import timm_record
from mgcap.backbones.transformers import hf_record
from mgcap.errors import did_you_mean
from mgcap.pooling import RULES
from mgcap.spectral import LAYERS

__all__ = [
    "BACKBONES",
    "Backbone",
    "Tapped",
    "UnknownBackbone",
    "add_file",
    "build_backbone",
    "find_backbone",
    "load_entry_points",
    "register",
    "split_backbone",
]

#: Every backbone that is known by a name of its own.
BACKBONES: dict[str, Backbone] = {}

_files: dict[Path, list[str]] = {}


class UnknownBackbone(ValueError):  # noqa: N818 (a name that nobody has given is no error of ours)
    """There is no backbone of this name."""


def register(record: Backbone) -> None:
    """Add a backbone.

    Raises:
        ValueError: If there is one of this name already, or the name means something else.
    """
    if not re.fullmatch(r"[\w.-]+", record.name, re.ASCII):
        raise ValueError(f"the name of a backbone has letters, digits, points and dashes, not '{record.name}'")
    if record.name in BACKBONES and BACKBONES[record.name] is not record:
        raise ValueError(f"there is a backbone '{record.name}' already")
    BACKBONES[record.name] = record


for _record in (
    *vgg_alexnet.RECORDS,
    *googlenet.RECORDS,
    *inception.RECORDS,
    *resnet.RECORDS,
    *mobilenet.RECORDS,
):
    register(_record)
#: Those of this package.
OWN = dict(BACKBONES)


def add_file(path: str | Path) -> list[str]:
    """Add what a Python file registers; it is run once.

    It calls :func:`register` for a backbone, or adds to :data:`mgcap.pooling.RULES` or :data:`mgcap.spectral.LAYERS`.

    Args:
        path: A file of the user's own: it is run as it is.

    Returns:
        The names of what was added.

    Raises:
        MgcapError: If it cannot be run, or registers nothing.
    """
    path = Path(path).expanduser().resolve()
    if path not in _files:
        _files[path] = own.run_file(path, (BACKBONES, RULES, LAYERS))
    return _files[path]


@cache
def load_entry_points() -> tuple[str, ...]:
    """Add the backbones of installed packages (entry points in the group ``mgcap.backbones``), once.

    Returns:
        One line for each entry point that cannot be used.
    """
    return tuple(own.from_entry_points(register))


def find_backbone(name: str, architecture: str | None = None) -> Backbone:
    """Look a backbone up; the error of an unknown name lists the known ones.

    Args:
        name: A key of :data:`BACKBONES`, ``timm:NAME``, or ``hf:NAME``.
        architecture: Of ``hf:NAME``, what it is, as :attr:`mgcap.MGCAPConfig.architecture` says; without it, its folder
            or the hub is asked.
    """
    if name.startswith(TIMM):
        return timm_record(name)
    if name.startswith(HF):
        return hf_record(name, architecture)
    failures = load_entry_points() if name not in BACKBONES else ()
    if name in BACKBONES:
        return BACKBONES[name]
    trouble = "".join(f"; {failure}" for failure in failures)
    raise UnknownBackbone(
        f"backbone: '{name}' is unknown{did_you_mean(name, BACKBONES)}; "
        f"allowed are {', '.join(BACKBONES)}, hf:NAME and timm:NAME{trouble}"
    )


def build_backbone(name: str, layer: str | None = None, activated: bool = True) -> nn.Module:
    """Build a backbone with random weights, cut at ``layer``.

    Args:
        name: A key of :data:`BACKBONES`, ``timm:NAME``, or ``hf:NAME``.
        layer: The layer to tap, by default the one the backbone is best known for.
        activated: Whether to tap after the layer's activation or before.

    Returns:
        A module from images ``[B, 3, H, W]``, normalised, to features ``[B, C, H', W']``.
    """
    return find_backbone(name).cut(layer, activated)
