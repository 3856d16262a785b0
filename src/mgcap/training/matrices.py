"""Pooled matrices of local features: what of them a pass over the views keeps, and how it comes about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.data.stream import Item
from mgcap.engines.pipeline import Piece
from mgcap.errors import ImageError
from mgcap.model import MGCAP, embed_reduced
from mgcap.reduction import Reduction

#: Matrices of images do not come near it; the square of it is finite in float32, whatever the number of entries.
LARGEST = 1e15


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


def pooled_matrices(
    model: MGCAP, variants: Sequence[Variant], pieces: Iterable[Piece], kinds: Collection[Kind]
) -> Iterator[tuple[int, dict[Kind, Tensor]]]:
    """For each image, in order, its pooled matrices ``[D, D]``; made image by image, so that no other matters."""
    rotations = model.config.rotations
    running: dict[int, dict[Kind, Tensor]] = {}
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
                    stride = rotations // count
                    _pool(
                        pools,
                        (v, piece.granularity, count),
                        variant,
                        matrices[-piece.first_rotation % stride :: stride],
                    )
        if piece.last:
            yield from ((index, running.pop(index)) for index in piece.indices)


def _pool(pools: dict[Kind, Tensor], kind: Kind, variant: Variant, matrices: Tensor) -> None:
    if not len(matrices):
        return
    before = pools.get(kind)
    if variant.config.rotation_pooling == "max":
        part = matrices.amax(0)
        pools[kind] = part if before is None else torch.maximum(before, part)
    else:
        part = matrices.sum(0) / kind[-1]
        pools[kind] = part if before is None else before + part


def unusable(item: Item, matrices: Iterable[Tensor]) -> ImageError | None:
    """What to say of an image whose matrices are of no use to a head: a network may overflow."""
    if all(bool(matrix.abs().amax() < LARGEST) for matrix in matrices):
        return None
    name = f"{item}: its" if isinstance(item, str | Path) else "the image's"
    return ImageError(f"{name} features are not finite")
