"""Pooled matrices of images through the feature cache: one pass over the views serves all that is missing.

A row belongs to a granularity, a number of rotations and everything else that the matrix depends on. The
rotations of 1, 2, 3, 4 and 6 are among those of 12, so one pass keeps the maxima over all of these; and a later model
with fewer granularities or rotations finds its rows there.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mgcap.backbones.pretrained import state_hash
from mgcap.data.stream import Item, OnError, image_batches
from mgcap.errors import ImageError
from mgcap.head import from_upper_triangle, upper_triangle, vector_length
from mgcap.inference.engines import Engine
from mgcap.inference.fingerprints import rule_fingerprints
from mgcap.inference.forward import Kind, Variant, all_kinds, walk_variants
from mgcap.inference.pipeline import images_together, stream_features
from mgcap.model import MGCAP
from mgcap.persistence.cache import FeatureCache, Recipe, content_key

#: Images in one chunk of the cache.
CHUNK = 32

Step = Callable[[int], None]

#: Matrices of images do not come near it; the square of it is finite in float32, whatever the number of entries.
LARGEST = 1e15

#: What a row depends on besides crop, rotations, weights and engine.
_FIELDS = {
    "size", "frame", "corners", "backbone", "layer", "activated",
    "reduction", "channels", "feature_norm", "embedding", "unbiased", "ridge", "rotation_pooling",
}  # fmt: skip
#: Values that may be somebody's code, and how a row calls their fingerprints.
_RULES = {"rotation_pooling": "rule", "backbone": "network"}


def recipe_of(model: MGCAP, engine: str, variant: Variant, granularity: int, count: int, weights: str) -> Recipe:
    """Everything that a row depends on."""
    c = variant.config
    values = c.model_dump(mode="json", include=_FIELDS)
    if c.architecture is not None:
        values["architecture"] = c.architecture
    rules = rule_fingerprints(c)
    values |= {key: rules[field] for field, key in _RULES.items() if field in rules}
    return {
        **values,
        "crop": round(model.config.field_of_view * model.config.granularities[granularity], 9),
        "rotations": count,
        "reduction_state": state_hash(variant.reduction.state_dict()) if c.reduction != "none" else "",
        "weights": weights,
        "engine": engine,
    }


class Extractor:
    """Fills the cache with the rows of a model and reads them back.

    Args:
        model: In evaluation mode, with its engine.
        engine: Computes its backbones.
        cache: Where rows are kept.
        variants: What to keep; by default the model's own matrices.
    """

    def __init__(
        self, model: MGCAP, engine: Engine, cache: FeatureCache, variants: Sequence[Variant] | None = None
    ) -> None:
        self.model, self.engine = model, engine
        self.variants = [Variant.of(model)] if variants is None else list(variants)
        hashes = [state_hash(backbone.state_dict()) for backbone in model.backbones]
        self.stores = {
            (v, g, count): cache.store(
                recipe_of(model, engine.fingerprint, self.variants[v], g, count, hashes[g if len(hashes) > 1 else 0]),
                vector_length(self.variants[v].side),
            )
            for v, g, count in all_kinds(model, self.variants)
        }

    def fill(self, items: Sequence[Item], on_error: OnError, on_step: Step = lambda n: None) -> list[bytes | None]:
        """Compute what is missing.

        Args:
            items: Images.
            on_error: Called for each image that cannot be read, or whose features are not finite; it is skipped.
            on_step: Called with the number of images done.

        Returns:
            For each image the key of its rows, or None if it was skipped.
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
            pieces = stream_features(self.model, images, self.engine, sorted({g for _, g, _ in kinds} or {0}))
            for index, pools in walk_variants(self.model, self.variants, pieces, kinds):
                rows = {kind: upper_triangle(pool.pooled).cpu() for kind, pool in pools.items()}
                while ours[0][0][-1] < index:
                    self._write(*ours.popleft(), pending, keys)
                if error := unusable(items[index], rows.values()):
                    on_error(index, error)
                    continue
                pending[index] = rows
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


def unusable(item: Item, matrices: Iterable[Tensor]) -> ImageError | None:
    """What to say of an image whose matrices are of no use to a head: a network may overflow."""
    if all(bool(matrix.abs().amax() < LARGEST) for matrix in matrices):
        return None
    name = f"{item}: its" if isinstance(item, str | Path) else "the image's"
    return ImageError(f"{name} features are not finite")
