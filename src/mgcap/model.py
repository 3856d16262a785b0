"""MG-CAP: views, backbone, reduction, embedding, pooling, spectral layer and head, put together."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from mgcap.config import MGCAPConfig
from mgcap.errors import WeightsError
from mgcap.head import vector_length
from mgcap.inference.forward import describe, see
from mgcap.pooling import count_votes
from mgcap.reduction import Reduction
from mgcap.views import sample_views

#: When no gradient is needed: views that are sampled together, and that go through the backbone together.
SAMPLED_VIEWS, BACKBONE_VIEWS = 48, 16

#: What is said of a model whose PCA has random axes.
UNFITTED_PCA = (
    "the PCA of this model is not fitted, so its axes are random: take MGCAP.from_pretrained, call reduction.fit, or "
    "train with reduction='learnt'"
)


class Canonical(NamedTuple):
    """The canonical appearance of each image at each granularity."""

    angles: Tensor  #: ``[B, S]`` in degrees: rotated clockwise by it, the image is in its canonical pose
    votes: Tensor  #: ``[B, S, R]``: how many entries of the matrix each rotation won


class Equivariance(NamedTuple):
    """How much a rotation of the images changes what a model gives, by the angle in degrees.

    A difference is the largest over the images of ``|rotated - upright| / |upright|``.
    """

    descriptors: dict[int, float]
    logits: dict[int, float]

    @property
    def worst(self) -> float:
        """The largest of all differences."""
        return max(*self.descriptors.values(), *self.logits.values())


class FeatureEngine(Protocol):
    """Computes local features in place of the backbones where no gradient is needed."""

    def features(self, views: Tensor, granularity: int) -> Tensor:
        """``[n, 3, h, w] -> [n, C, N]`` in float32, of views that are normalised in colour."""


class MGCAP(nn.Module):
    """Multi-granularity canonical appearance pooling.

    Args:
        config: What to build. The backbone has random weights until some are loaded, see also :meth:`from_pretrained`.

    Images are float RGB in [0, 1], ``[B, 3, H, W]``, of any size.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: MGCAPConfig) -> None:
        super().__init__()
        self.config = config
        spec = config.record
        streams = 1 if config.share_granularities else len(config.granularities)
        self.backbones = nn.ModuleList(spec.cut(config.layer, config.activated) for _ in range(streams)).to(
            memory_format=torch.channels_last
        )  # type: ignore[call-overload]
        mean, std = spec.input_statistics(self.backbones[0])
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)
        width = spec.width(str(config.layer)) or self._measured_width()
        self.reduction = Reduction(config.reduction, width, config.channels)
        self.side = self.reduction.channels + (config.embedding == "gaussian")
        self.head = nn.Linear(vector_length(self.side, config.vector), config.num_classes)
        self._looked_at_pca = config.reduction != "pca"

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        num_classes: int | None = None,
        *,
        device: str | torch.device = "cpu",
        weights: str | Path = "imagenet",
        **config: Any,
    ) -> MGCAP:
        """A model with weights, in evaluation mode and ready for training.

        Args:
            name: A preset (``compact``, ``tiny``, ``paper`` or ``authors-code``): its backbone has weights, its PCA the
                universal descriptor's axes where there are some, and its head is fresh. Or a saved model: its file or
                its name.
            num_classes: Of the head. A saved model keeps its head if it has as many, or if none are given.
            device: Where it goes.
            weights: Of a preset's backbone: ``imagenet`` (fetched once, kept in the cache), a file, or ``random``.
            **config: Other values of the configuration.

        Raises:
            MgcapError: With one sentence, if there is no such model, or its weights do not fit.
        """
        # What builds models is above this module, so it is looked up only when it is wanted.
        built: MGCAP = importlib.import_module("mgcap.inference.pretrained").pretrained_model(
            name, num_classes, str(device), weights, config
        )
        return built

    def _measured_width(self) -> int:
        with torch.no_grad():
            size = self.config.size
            return int(self.backbones[0](torch.zeros(1, 3, size, size)).shape[1])

    def load_backbone(self, state: dict[str, Tensor], source: str = "the state dict") -> None:
        """Load a state dict with torchvision's names into the backbone of every granularity.

        Raises:
            WeightsError: If it does not fit.
        """
        try:
            for backbone in self.backbones:
                backbone.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise WeightsError(f"the weights from {source} do not fit {self.config.backbone}: {reason}") from error

    def forward(self, images: Tensor) -> Tensor:
        """Logits ``[B, K]``."""
        logits: Tensor = self.head(self.descriptor(images))
        return logits

    def descriptor(self, images: Tensor) -> Tensor:
        """What the head sees: ``[B, D(D+1)/2]`` (or ``[B, D*D]``), rows of length one."""
        if not self._looked_at_pca and not torch.compiler.is_compiling():
            self._warn_of_unfitted_pca()
        return describe(see(self, self._features(images)).pooled, self.config)

    @torch.no_grad()
    def canonical(self, images: Tensor) -> Canonical:
        """Which rotation won, per image and granularity (Eq. 28); a tie goes to the smaller angle."""
        winners = see(self, self._features(images), winners=True).winners
        assert winners is not None
        votes = count_votes(winners, self.config.rotations)
        angles = torch.tensor(self.config.angles, device=votes.device)
        return Canonical(angles[votes.argmax(-1)], votes)

    @torch.no_grad()
    def check_equivariance(
        self, images: Tensor | None = None, tolerance: float | None = None, angles: Sequence[int] = (90, 180, 270)
    ) -> Equivariance:
        """Measure whether rotated images give the same descriptors and logits.

        They do under those quarter turns that are among the rotations of the configuration: all with 4, 8 or 12 of
        them, half a turn with 2, none with 1.

        Args:
            images: ``[B, 3, H, W]`` in [0, 1]; noise by default.
            tolerance: The largest difference that is allowed.
            angles: Multiples of 90 degrees, under which no pixel is interpolated.

        Raises:
            AssertionError: If a difference is above ``tolerance``.
        """
        if images is None:
            size, noise = self.config.size, torch.Generator().manual_seed(0)
            images = torch.rand(2, 3, size, size, generator=noise)
        images = images.to(self.mean)
        found = Equivariance({}, {})
        upright = self.descriptor(images)
        for angle in angles:
            if angle % 90:
                raise ValueError(f"angles must be multiples of 90 degrees, not {angle}")
            rotated = self.descriptor(images.rot90(angle // 90, (-2, -1)))
            found.descriptors[angle] = _difference(rotated, upright)
            found.logits[angle] = _difference(self.head(rotated), self.head(upright))
        if tolerance is not None and not found.worst <= tolerance:
            raise AssertionError(f"rotated images change the model's output by {found.worst:.2g}, not {tolerance:.2g}")
        return found

    def local_features(self, views: Tensor, granularity: int = 0) -> Tensor:
        """Features of views ``[B, 3, h, w]``, normalised in colour, before the reduction: ``[B, C, N]``."""
        backbone = self.backbones[granularity if len(self.backbones) > 1 else 0]
        parts = (views,) if torch.is_grad_enabled() else torch.split(views, BACKBONE_VIEWS)
        return torch.cat([backbone(part.contiguous(memory_format=torch.channels_last)).flatten(2) for part in parts])

    def views_at(
        self, images: Tensor, granularity: int, angles: Sequence[float], field_of_view: float | None = None
    ) -> Tensor:
        """Views ``[B, r, 3, h, w]``, normalised in colour, at one granularity and some rotations in degrees.

        The field of view is the configuration's unless another is given, as for images that are cropped already.
        """
        c = self.config
        crop = (c.field_of_view if field_of_view is None else field_of_view) * c.granularities[granularity]
        return sample_views((images - self.mean) / self.std, crop, angles, c.size, c.frame, c.corners)

    def features_at(
        self, images: Tensor, granularity: int, angles: Sequence[float], engine: FeatureEngine | None = None
    ) -> Tensor:
        """Local features ``[B, r, C, N]`` of images at one granularity and some rotations in degrees.

        An engine computes them in place of the backbones, without a gradient.
        """
        views = self.views_at(images, granularity, angles)
        compute = self.local_features if engine is None else engine.features
        features = compute(views.flatten(0, 1), granularity)
        return features.reshape(images.shape[0], len(angles), *features.shape[1:])

    def iter_features(self, images: Tensor, granularity: int) -> Iterator[Tensor]:
        """Local features of one granularity in chunks of rotations, ``[B, r, C, N]``.

        Without a gradient the chunks are small, so that memory grows with the batch and not with the rotations.
        """
        angles = self.config.angles
        chunk = len(angles) if self._needs_graph(images) else max(1, SAMPLED_VIEWS // images.shape[0])
        for start in range(0, len(angles), chunk):
            yield self.features_at(images, granularity, angles[start : start + chunk])

    def _warn_of_unfitted_pca(self) -> None:
        self._looked_at_pca = True
        if not self.mean.is_meta and not torch._C._get_tracing_state() and not bool(self.reduction.fitted):
            warnings.warn(UNFITTED_PCA, UserWarning, stacklevel=3)

    def _needs_graph(self, images: Tensor) -> bool:
        trained = (*self.backbones.parameters(), *self.reduction.parameters())
        return torch.is_grad_enabled() and (images.requires_grad or any(p.requires_grad for p in trained))

    def _features(self, images: Tensor) -> Iterator[Iterator[Tensor]]:
        """For each granularity the local features of its rotations, in chunks."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(f"images must be [B, 3, H, W], not {list(images.shape)}")
        return (self.iter_features(images, s) for s in range(len(self.config.granularities)))


def _difference(rotated: Tensor, upright: Tensor) -> float:
    return float(((rotated - upright).norm(dim=1) / upright.norm(dim=1)).max())
