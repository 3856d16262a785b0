"""MG-CAP itself among the methods: the paper's three kinds with a frozen VGG-16, and the default ``compact``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mgcap.baselines.method import About, Tools, register
from mgcap.baselines.softmax import ExactSoftmax
from mgcap.config import MGCAPConfig
from mgcap.data.stream import Item
from mgcap.errors import ImageError
from mgcap.inference.descriptors import cached_descriptors
from mgcap.inference.extraction import Extractor
from mgcap.inference.preparation import build_model
from mgcap.training.setup import Setup
from mgcap.training.stages import prepare_descriptor


class FrozenMgcap(ExactSoftmax):
    """MG-CAP with a frozen backbone and the exact head, through the feature cache.

    Args:
        tools: What methods share.
        preset: Of the configuration.
        config: Other values of it.
    """

    def __init__(self, tools: Tools, preset: str = "compact", **config: Any) -> None:
        self.tools = tools
        self.weights = config.pop("weights", "imagenet")
        self.config = {"preset": preset, **config}

    def prepare(self, images: Sequence[Item], classes: int) -> None:
        """Build the model and fit its reduction."""
        runtime = self.tools.runtime()
        self.model, _ = build_model(MGCAPConfig(**self.config, num_classes=classes), self.weights, runtime)
        self.engine, _ = prepare_descriptor(Setup(self.weights, runtime=runtime), self.model, images)

    def parameters(self) -> int:
        """Numbers of backbone, reduction and head."""
        parts = [*self.model.backbones.parameters(), *self.model.reduction.buffers()]
        return sum(int(part.numel()) for part in parts) + self.head_numbers()

    def rows(self, images: Sequence[Item]) -> Tensor:
        """MG-CAP's descriptors, by way of the cache."""
        extractor = Extractor(self.model, self.engine, self.tools.cache)

        def stop(index: int, error: ImageError) -> None:
            raise error

        keys = [key for key in extractor.fill(images, stop) if key]
        return cached_descriptors(extractor, keys)


def _register(name: str, title: str, what: str, published: str | None, needs: str, source: str, **config: Any) -> None:
    about = About(
        name=name,
        title=title,
        family="MG-CAP" if source.startswith("Wang") else "deep, frozen",
        source=source,
        what=what,
        published=published,
        needs=(f"weights:{needs}",),
    )
    register(about, lambda tools: FrozenMgcap(tools, **config))


_PAPER = "Wang, Guan and Shao 2020"
for _kind, _title in (("bilinear", "Bilinear"), ("log", "Log-E"), ("sqrt", "Sqrt-E")):
    _register(
        f"mgcap-{_kind}",
        f"MG-CAP {_title}, VGG-16 frozen",
        "3 granularities x 12 rotations of a frozen VGG-16, exact softmax head; the paper fine-tunes",
        f"MG-CAP {_title} with VGG-D",
        "vgg16",
        _PAPER,
        preset="paper",
        normalisation=_kind,
        share_granularities=True,
    )
_register(
    "mgcap-compact",
    "MG-CAP compact",
    "the default of this package: frozen ResNet-50, PCA to 128 channels, 2 granularities x 4 rotations",
    None,
    "resnet50-v1",
    _PAPER,
)
_register(
    "isqrt-cov",
    "iSQRT-COV, ResNet-50 frozen",
    "covariance of 128 principal channels of stage 4, its root by Newton-Schulz; the paper trains the network",
    None,
    "resnet50-v1",
    "Li et al. 2018",
    rotations=1,
    granularities=(1.0,),
    embedding="covariance",
    spectral_method="newton-schulz",
)
