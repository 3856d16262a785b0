"""An engine that is the model itself, and a backbone that looks no farther than it says: for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from mgcap import MGCAP
from mgcap.backbones import BACKBONES, Backbone, register
from mgcap.inference.engines.torch import Stamp, weight_stamp


class PlainEngine:
    """Computes with the model's own backbones, whatever becomes of their weights."""

    name, overlaps = "plain", False

    def __init__(self, model: MGCAP, fingerprint: str = "plain") -> None:
        self.model, self.fingerprint = model, fingerprint

    @property
    def made_from(self) -> Stamp:
        return weight_stamp(self.model.backbones)

    def features(self, views: Tensor, granularity: int) -> Tensor:
        return self.model.local_features(views, granularity)


class Patches(nn.Module):
    """Each position sees a patch of its own, so nothing but these patches matters to a window."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 8, stride=8)
        self.second = nn.Conv2d(6, 6, 1)

    def forward(self, images: Tensor) -> Tensor:
        return self.second(self.first(images).tanh()).relu()


@contextmanager
def patches_backbone() -> Iterator[None]:
    """Make a backbone of the name ``patches`` known, with a layer ``last``."""
    if "patches" in BACKBONES:
        yield
        return
    register(Backbone("patches", "for tests", lambda layer, activated: Patches(), {"last": 6}, "last"))
    try:
        yield
    finally:
        del BACKBONES["patches"]
