"""Convolutional networks f_e (Eq. 3), cut at the layer that is tapped: one record for each.

Parameter names are torchvision's, so its state dicts load as they are; what lies behind the tap is dropped.
"""

from __future__ import annotations

import difflib

from torch import nn

from mgcap.backbones import googlenet, resnet, vgg_alexnet
from mgcap.backbones.record import Backbone
from mgcap.backbones.tapped import split_backbone
from mgcap.backbones.timm import PREFIX as TIMM
from mgcap.backbones.timm import timm_record

__all__ = ["BACKBONES", "Backbone", "build_backbone", "find_backbone", "register", "split_backbone"]

#: Every backbone that needs no optional package, by name.
BACKBONES: dict[str, Backbone] = {}


def register(record: Backbone) -> None:
    """Add a backbone.

    Raises:
        ValueError: If there is one of this name already.
    """
    if record.name in BACKBONES and BACKBONES[record.name] is not record:
        raise ValueError(f"there is a backbone '{record.name}' already")
    BACKBONES[record.name] = record


for _record in (*vgg_alexnet.RECORDS, *googlenet.RECORDS, *resnet.RECORDS):
    register(_record)


def find_backbone(name: str) -> Backbone:
    """Look a backbone up; the error of an unknown name lists the known ones.

    Args:
        name: A key of :data:`BACKBONES`, or ``timm:NAME``.
    """
    if name in BACKBONES:
        return BACKBONES[name]
    if name.startswith(TIMM):
        return timm_record(name)
    close = difflib.get_close_matches(name, BACKBONES, n=1)
    hint = f" (did you mean '{close[0]}'?)" if close else ""
    raise ValueError(f"backbone: '{name}' is unknown{hint}; allowed are {', '.join(BACKBONES)} and timm:NAME")


def build_backbone(name: str, layer: str | None = None, activated: bool = True) -> nn.Module:
    """Build a backbone with random weights, cut at ``layer``.

    Args:
        name: A key of :data:`BACKBONES`, or ``timm:NAME``.
        layer: The layer to tap, by default the one the backbone is best known for.
        activated: Whether to tap after the layer's activation or before.

    Returns:
        A module from images ``[B, 3, H, W]``, normalised, to features ``[B, C, H', W']``.
    """
    record = find_backbone(name)
    layer = layer or record.default_layer
    record.width(layer)
    return record.build(layer, activated)
