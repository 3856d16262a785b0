"""An engine that is the model itself, for tests of what uses engines."""

from __future__ import annotations

from torch import Tensor

from mgcap import MGCAP
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
