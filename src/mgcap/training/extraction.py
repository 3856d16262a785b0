"""Pooled matrices of images through the feature cache: one pass over the views serves all that is missing.

A row belongs to a granularity, a number of rotations and everything else that the matrix depends on. The
rotations of 1, 2, 3, 4 and 6 are among those of 12, so one pass keeps the maxima over all of these; and a later model
with fewer granularities or rotations finds its rows there.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.data.cache import FeatureCache, Recipe, content_key
from mgcap.data.stream import Item, OnError, image_batches
from mgcap.engines.pipeline import Piece, images_together, local_features
from mgcap.errors import ImageError
from mgcap.head import from_upper_triangle, upper_triangle
from mgcap.model import MGCAP, embed_reduced
from mgcap.reduction import Reduction
from mgcap.weights import state_hash

#: Images in one chunk of the cache.
CHUNK = 32

Step = Callable[[int], None]

#: What a row depends on besides crop, rotations, weights and engine.
_FIELDS = {
    "size", "frame", "corners", "backbone", "layer", "activated",
    "reduction", "channels", "feature_norm", "embedding", "unbiased", "ridge", "rotation_pooling",
}  # fmt: skip


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


def recipe_of(model: MGCAP, engine_mark: str, variant: Variant, granularity: int, count: int, weights: str) -> Recipe:
    """Everything that a row depends on."""
    c = variant.config
    values = c.model_dump(mode="json", include=_FIELDS)
    return {
        **values,
        "crop": round(model.config.field_of_view * model.config.granularities[granularity], 9),
        "rotations": count,
        "reduction_state": state_hash(variant.reduction.state_dict()) if c.reduction != "none" else "",
        "weights": weights,
        "engine": engine_mark,
    }


class Extractor:
    """Fills the cache with the rows of a model and reads them back.

    Args:
        model: In evaluation mode, with its engine.
        engine_mark: What the engine's numbers depend on, see :attr:`mgcap.engines.Engine.mark`.
        cache: Where rows are kept.
        variants: What to keep; by default the model's own matrices.
    """

    def __init__(
        self, model: MGCAP, engine_mark: str, cache: FeatureCache, variants: Sequence[Variant] | None = None
    ) -> None:
        self.model = model
        self.variants = [Variant.of(model)] if variants is None else list(variants)
        hashes = [state_hash(backbone.state_dict()) for backbone in model.backbones]
        self.stores = {
            (v, g, count): cache.store(
                recipe_of(model, engine_mark, self.variants[v], g, count, hashes[g if len(hashes) > 1 else 0])
            )
            for v, g, count in all_kinds(model, self.variants)
        }

    def fill(self, items: Sequence[Item], on_error: OnError, on_step: Step = lambda n: None) -> list[bytes | None]:
        """Compute what is missing.

        Args:
            items: Images.
            on_error: Is told of each image that cannot be read; it is passed over.
            on_step: Is told how many images were done.

        Returns:
            For each image the key of its rows, or None if it could not be read.
        """
        keys = [content_key(item) for item in items]
        failed: set[int] = set()
        done: set[int] = set()

        def fail(index: int, error: ImageError) -> None:
            failed.add(index)
            on_error(index, error)
            on_step(1)

        def finish(index: int) -> None:
            done.add(index)
            on_step(1)

        while True:
            for index, key in enumerate(keys):
                if index not in done and key is not None and self._has(key):
                    finish(index)
            todo = [i for i in range(len(items)) if i not in done and i not in failed]
            if not todo:
                return [None if index in failed else key for index, key in enumerate(keys)]
            if not self._pass(items, keys, todo, fail, finish):
                time.sleep(0.2)  # other processes are at work on all that is left
            keys = [content_key(item) if key is None else key for key, item in zip(keys, items, strict=True)]
            self._refresh()

    def _has(self, key: bytes) -> bool:
        return all(key in store for store in self.stores.values())

    def _refresh(self) -> None:
        for store in self.stores.values():
            store.refresh()

    @torch.inference_mode()
    def _pass(
        self,
        items: Sequence[Item],
        keys: Sequence[bytes | None],
        todo: Sequence[int],
        on_error: OnError,
        on_done: Callable[[int], None],
    ) -> bool:
        """Go over images, chunk by chunk, leaving out chunks that another process works on; whether any was ours."""
        known = [key for i in todo if (key := keys[i]) is not None]
        kinds = {kind for kind, store in self.stores.items() if not all(key in store for key in known)}
        chunks: dict[int, list[int]] = {}
        for index in todo:
            chunks.setdefault(index // CHUNK, []).append(index)
        lock = next(iter(self.stores.values()))
        ours: deque[tuple[list[int], contextlib.ExitStack]] = deque()
        any_of_them = False

        def order() -> Iterator[int]:
            nonlocal any_of_them
            for members in chunks.values():
                with contextlib.ExitStack() as stack:
                    if not stack.enter_context(lock.claim(b"".join(keys[i] or b"" for i in members))):
                        continue
                    self._refresh()
                    left = [i for i in members if (key := keys[i]) is None or not self._has(key)]
                    if left:
                        any_of_them = True
                        ours.append((left, stack.pop_all()))
                        yield from left

        pending: dict[int, dict[Kind, Tensor]] = {}
        try:
            batch = images_together(self.model.config.rotations, self.model.head.weight.device.type)
            images = image_batches(items, batch, on_error, order=order())
            pieces = local_features(self.model, images, sorted({g for _, g, _ in kinds} or {0}))
            for index, matrices in pooled_matrices(self.model, self.variants, pieces, kinds):
                pending[index] = {kind: upper_triangle(matrix).cpu() for kind, matrix in matrices.items()}
                while ours[0][0][-1] < index:
                    self._write(*ours.popleft(), pending, keys)
                on_done(index)
            while ours:
                self._write(*ours.popleft(), pending, keys)
        finally:
            for _, stack in ours:
                stack.close()
        return any_of_them

    def _write(
        self,
        members: Sequence[int],
        claim: contextlib.ExitStack,
        pending: dict[int, dict[Kind, Tensor]],
        keys: Sequence[bytes | None],
    ) -> None:
        """Write the chunk of these images for every kind that has not got it, and give up the claim on it."""
        with claim:
            for kind, store in self.stores.items():
                found = [(key, pending[i][kind]) for i in members if (key := keys[i]) and kind in pending.get(i, {})]
                fresh = {key: row for key, row in found if key not in store}
                if fresh:
                    store.add(list(fresh), torch.stack(list(fresh.values())))
        for index in members:
            pending.pop(index, None)

    def pooled(
        self,
        keys: Sequence[bytes],
        variant: int = 0,
        count: int | None = None,
        granularities: Sequence[int] | None = None,
    ) -> Tensor:
        """Pooled matrices ``[n, S, D, D]`` of images whose rows are there.

        Args:
            keys: What :meth:`fill` gave.
            variant: Number of the variant.
            count: Number of rotations; the most by default.
            granularities: Their numbers; all by default.
        """
        own = self.variants[variant]
        chosen = range(len(self.model.config.granularities)) if granularities is None else granularities
        stores = [self.stores[variant, g, count or own.counts[-1]] for g in chosen]
        return from_upper_triangle(torch.stack([store.read(keys) for store in stores], dim=1))
