"""Descriptors and logits of many images: by way of the cache, in turns among processes, or streamed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.data.samples import part_of
from mgcap.data.stream import Item, OnError, image_batches
from mgcap.errors import ImageError
from mgcap.head import vector_length
from mgcap.inference.engines import Engine
from mgcap.inference.extraction import Extractor, Step, unusable
from mgcap.inference.forward import Answer, Seen, answer, describe, walk
from mgcap.inference.pipeline import images_together, stream_features
from mgcap.inference.preparation import open_cache
from mgcap.inference.sample import TrainingSample, reduce_rows
from mgcap.model import MGCAP
from mgcap.persistence.files import cache_dir
from mgcap.runtime import Runtime
from mgcap.typing import Array

#: Images whose spectra are normalised together.
BLOCK = 8
#: Images that are looked at and answered together: their rows may have to stay in memory where the disk is full.
PIECE = 2048
#: Descriptors beyond this size go to a file.
MEMORY_BYTES = 2 << 30


@torch.inference_mode()
def cached_descriptors(
    extractor: Extractor, keys: Sequence[bytes], variant: int = 0, config: MGCAPConfig | None = None
) -> Tensor:
    """Descriptors ``[n, d]`` on the CPU of images whose pooled matrices are in the cache.

    They lie in a temporary file, which takes no memory that others need, where they are large.

    Args:
        extractor: Has filled the cache.
        keys: What it gave.
        variant: Number of the variant.
        config: Granularities and rotations (among the extractor's), fusion, spectral layer and vector; by default
            the model's own.
    """
    config = extractor.model.config if config is None else config
    own = extractor.model.config.granularities
    chosen = [own.index(g) for g in config.granularities]
    rows = large_rows(len(keys), vector_length(extractor.variants[variant].side, config.vector))
    device = extractor.model.head.weight.device
    for start in range(0, len(keys), BLOCK):
        pooled = extractor.pooled(keys[start : start + BLOCK], variant, config.rotations, chosen)
        rows[start : start + BLOCK] = describe(pooled.to(device), config).cpu()
    return rows


def large_rows(count: int, length: int) -> Tensor:
    """Uninitialised float32 ``[count, length]``: in memory, or in a file without a name when it is large."""
    if 4 * count * length <= MEMORY_BYTES:
        return torch.empty(count, length)
    with tempfile.TemporaryFile(dir=cache_dir() if cache_dir().is_dir() else None) as file:
        return torch.from_numpy(np.memmap(file, np.float32, "w+", shape=(count, length)))


@torch.inference_mode()
def stream_answers(
    model: MGCAP, engine: Engine | None, items: Sequence[Item], on_error: OnError, on_step: Step = lambda n: None
) -> Iterator[tuple[list[int], Answer]]:
    """Descriptors and logits of images, in order and in blocks, with nothing kept: indices and what the model says."""
    images = image_batches(items, images_together(model.config.rotations, model.mean.device.type), on_error)
    indices: list[int] = []
    pooled: list[Tensor] = []
    for index, seen in walk(model, stream_features(model, images, engine)):
        if error := unusable(items[index], seen.pooled[0]):
            on_error(index, error)
            continue
        indices.append(index)
        pooled.append(seen.pooled)
        if len(indices) == BLOCK:
            yield indices, answer(model, Seen(torch.cat(pooled), None))
            on_step(len(indices))
            indices, pooled = [], []
    if indices:
        yield indices, answer(model, Seen(torch.cat(pooled), None))
        on_step(len(indices))


@torch.inference_mode()
def cached_answers(
    model: MGCAP,
    engine: Engine,
    items: Sequence[Item],
    on_error: OnError,
    runtime: Runtime,
    on_step: Step = lambda n: None,
) -> Iterator[tuple[list[int], Answer]]:
    """Like :func:`stream_answers`; what the cache holds is not computed again, and what it lacks is kept there."""
    for start in range(0, len(items), PIECE):
        extractor = Extractor(model, engine, open_cache(runtime))

        def fail(index: int, error: ImageError, start: int = start) -> None:
            on_error(start + index, error)

        keys = extractor.fill(part_of(items, range(start, min(start + PIECE, len(items)))), fail, on_step)
        kept = [(start + index, key) for index, key in enumerate(keys) if key]
        for first in range(0, len(kept), BLOCK):
            indices, block = zip(*kept[first : first + BLOCK], strict=True)
            pooled = extractor.pooled(block).to(model.head.weight.device)
            yield list(indices), answer(model, Seen(pooled, None))


class Predicted(NamedTuple):
    """What a model says of the images that could be read."""

    indices: list[int]
    probabilities: Array  #: ``[n, K]``
    distances: Array | None  #: ``[n]``: from what the model was trained on, if it knows


def predicted(
    blocks: Iterator[tuple[list[int], Answer]], model: MGCAP, sample: TrainingSample | None = None
) -> Predicted:
    """Collect the answers of a model, and how far images are from its sample."""
    kept: list[int] = []
    parts, distances = [np.empty((0, model.config.num_classes))], [np.empty(0)]
    for indices, found in blocks:
        kept += indices
        parts.append(found.probabilities.cpu().numpy())
        if sample is not None:
            distances.append(sample.distance(reduce_rows(model, found.descriptors.float().cpu())).numpy())
    return Predicted(kept, np.concatenate(parts), None if sample is None else np.concatenate(distances))


def vectors(
    model: MGCAP,
    engine: Engine,
    items: Sequence[Item],
    on_error: OnError,
    runtime: Runtime,
    on_step: Step = lambda n: None,
) -> tuple[list[int], Tensor]:
    """Which images can be read, and their descriptors ``[n, d]``; what the cache holds is not computed again."""
    extractor = Extractor(model, engine, open_cache(runtime))
    keys = extractor.fill(items, on_error, on_step)
    return [i for i, key in enumerate(keys) if key], cached_descriptors(extractor, [key for key in keys if key])
