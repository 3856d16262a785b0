"""The one forward pass: local features to matrices, pooled over rotations, fused, normalised; descriptors and logits.

All local features come through here, whatever computed them: torch with or without a gradient, an engine, cached
views. Features come in chunks of rotations; what is kept of them does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from mgcap import head, pooling, spectral
from mgcap.config import MGCAPConfig
from mgcap.embedding import covariance, gaussian_embedding, normalise_features
from mgcap.pooling import RotationPool
from mgcap.reduction import Reduction

if TYPE_CHECKING:
    from mgcap.inference.pipeline import Piece
    from mgcap.model import MGCAP


class Seen(NamedTuple):
    """What is left of images after pooling."""

    pooled: Tensor  #: ``[B, S, D, D]``, one matrix a granularity
    winners: Tensor | None  #: ``[B, S, D, D]``, the rotation with the largest entry, if that was asked for


class Answer(NamedTuple):
    """The outputs of a model for images."""

    descriptors: Tensor  #: ``[B, d]``
    logits: Tensor  #: ``[B, K]``
    votes: Tensor | None  #: ``[B, S, R]``: how many entries of the matrix each rotation won

    @property
    def probabilities(self) -> Tensor:
        """``[B, K]`` in float64."""
        return self.logits.double().softmax(1)


def embed(features: Tensor, config: MGCAPConfig, reduction: Reduction) -> Tensor:
    """Matrices ``[..., D, D]`` of local features ``[..., C, N]`` (Eq. 5-8)."""
    return embed_reduced(reduction(features), config)


def embed_reduced(features: Tensor, config: MGCAPConfig) -> Tensor:
    """Matrices ``[..., D, D]`` of local features ``[..., C', N]`` that are reduced already."""
    features = normalise_features(features, config.feature_norm)
    embedding = gaussian_embedding if config.embedding == "gaussian" else covariance
    return embedding(features, config.ridge, config.unbiased)


def normalise_spectrum(matrix: Tensor, config: MGCAPConfig) -> Tensor:
    """The spectral layer of a configuration, in float32 at least."""
    with torch.autocast(matrix.device.type, enabled=False):
        matrix = matrix if matrix.dtype == torch.float64 else matrix.float()
        return spectral.LAYERS[config.normalisation](matrix, config)


def describe(pooled: Tensor, config: MGCAPConfig) -> Tensor:
    """Descriptors ``[B, d]`` from the pooled matrices ``[B, S, D, D]`` of the granularities."""
    fused = pooling.fuse(pooled, config.fusion, config.fusion_norm)
    return head.descriptor_vector(normalise_spectrum(fused, config), config.vector, config.signed_root)


def see(model: MGCAP, features: Iterable[Iterable[Tensor]], winners: bool = False) -> Seen:
    """Embed and pool.

    Args:
        model: Its configuration and reduction count.
        features: For each granularity local features in chunks of rotations, ``[B, r, C, N]``.
        winners: Also say which rotation has the largest entry.
    """
    pools = []
    for chunks in features:
        pool = RotationPool(model.config.rotation_pooling, winners)
        for chunk in chunks:
            pool.add(embed(chunk, model.config, model.reduction))
        pools.append(pool)
    return _stacked(pools, -3)


def _stacked(pools: Sequence[RotationPool], dim: int) -> Seen:
    won = [pool.winner for pool in pools if pool.winner is not None]
    return Seen(torch.stack([pool.pooled for pool in pools], dim), torch.stack(won, dim) if won else None)


def answer(model: MGCAP, seen: Seen) -> Answer:
    """Descriptors, logits and votes of what was seen."""
    descriptors = describe(seen.pooled, model.config)
    votes = None if seen.winners is None else pooling.count_votes(seen.winners, model.config.rotations)
    return Answer(descriptors, model.head(descriptors), votes)


# --- many images, whose features come piece by piece ------------------------------------------------------------


def rotation_counts(rotations: int) -> tuple[int, ...]:
    """The numbers of rotations that a pass over ``rotations`` contains: its divisors."""
    return tuple(count for count in range(1, rotations + 1) if rotations % count == 0)


@dataclass(frozen=True, eq=False)
class Variant:
    """A way to make matrices of local features: by default the model's own.

    Args:
        config: Its reduction, embedding and pooling count; views and network are the model's. One that asks for
            activated features gets them also from a network without the last ReLU.
        reduction: Fitted, if it is a PCA.
        counts: Numbers of rotations to keep the pooled matrices of, divisors of the model's.
    """

    config: MGCAPConfig
    reduction: Reduction
    counts: tuple[int, ...]

    @classmethod
    def of(cls, model: MGCAP, nested: bool = False) -> Variant:
        """The model's own matrices, for its number of rotations or for all that are contained in it."""
        rotations = model.config.rotations
        return cls(model.config, model.reduction, rotation_counts(rotations) if nested else (rotations,))

    @cached_property
    def side(self) -> int:
        """Rows and columns of a matrix."""
        return self.reduction.channels + (self.config.embedding == "gaussian")

    def reduced(self, features: Tensor, network: MGCAPConfig) -> Tensor:
        """Reduced features of local features ``[..., C, N]`` that a model of configuration ``network`` gave."""
        out: Tensor = self.reduction(features.relu() if self.activates(network) else features)
        return out

    def activates(self, network: MGCAPConfig) -> bool:
        """Whether the ReLU is still to be applied to the features of a network of this configuration."""
        return self.config.activated and not network.activated


#: Number of the variant, granularity, number of rotations.
Kind = tuple[int, int, int]


def all_kinds(model: MGCAP, variants: Sequence[Variant]) -> list[Kind]:
    """Every kind of matrix that variants keep."""
    granularities = range(len(model.config.granularities))
    return [(v, g, count) for v, own in enumerate(variants) for g in granularities for count in own.counts]


def walk_variants(
    model: MGCAP, variants: Sequence[Variant], pieces: Iterable[Piece], kinds: Collection[Kind], winners: bool = False
) -> Iterator[tuple[int, dict[Kind, RotationPool]]]:
    """For each image, in order, its pooled matrices by kind; made image by image, so that no other matters."""
    rotations = model.config.rotations
    running: dict[int, dict[Kind, RotationPool]] = {}
    for piece in pieces:
        for index, features in zip(piece.indices, piece.features, strict=True):
            pools = running.setdefault(index, {})
            shared: dict[tuple[int, bool], Tensor] = {}  # variants with one PCA reduce the features once
            for v, variant in enumerate(variants):
                counts = [count for count in variant.counts if (v, piece.granularity, count) in kinds]
                if not counts:
                    continue
                way = id(variant.reduction), variant.activates(model.config)
                if way not in shared:
                    shared[way] = variant.reduced(features, model.config)
                matrices = embed_reduced(shared[way], variant.config)
                for count in counts:
                    kind = v, piece.granularity, count
                    if kind not in pools:
                        pools[kind] = RotationPool(variant.config.rotation_pooling, winners)
                    stride = rotations // count
                    pools[kind].add(matrices[-piece.first_rotation % stride :: stride])
        if piece.last:
            yield from ((index, running.pop(index)) for index in piece.indices)


def walk(model: MGCAP, pieces: Iterable[Piece], winners: bool = False) -> Iterator[tuple[int, Seen]]:
    """For each image, in order, what is left of it after pooling, with ``B = 1``."""
    variants = [Variant.of(model)]
    kinds = all_kinds(model, variants)
    for index, pools in walk_variants(model, variants, pieces, kinds, winners):
        pooled, won = _stacked([pools[kind] for kind in kinds], 0)
        yield index, Seen(pooled[None], None if won is None else won[None])
