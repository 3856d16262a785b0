"""Training with a frozen backbone: PCA of the channels, descriptors once, then the exact head."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Collection, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from mgcap.assets import cache_dir
from mgcap.config import MGCAPConfig
from mgcap.data.stream import Item, OnError, image_batches
from mgcap.engines.openvino import CALIBRATION_VIEWS
from mgcap.engines.pipeline import images_together, local_features
from mgcap.errors import DataError
from mgcap.head import vector_length
from mgcap.model import MGCAP, describe
from mgcap.reduction import FeatureMoments, Reduction
from mgcap.training.distributed import gather_rows, own_part, processes, total
from mgcap.training.extraction import Extractor, Step
from mgcap.training.matrices import LARGEST, Variant, all_kinds, pooled_matrices, unusable

#: Training images that the PCA sees, at one rotation each: 50,000 local features for 128 axes.
PCA_IMAGES = 256
#: Of these, so many go through the network together.
PCA_BATCH = 8
#: Images whose spectra are normalised together.
BLOCK = 8
#: Descriptors beyond this size go to a file.
MEMORY_BYTES = 2 << 30


@torch.inference_mode()
def fit_reductions(
    model: MGCAP,
    items: Sequence[Item],
    groups: Sequence[Collection[int]],
    seed: int = 0,
    on_step: Step = lambda n: None,
    activate: bool = False,
) -> list[Reduction]:
    """A PCA for each group of (training) images, fitted on local features of a seeded choice of its members.

    Groups choose in the same order, so that those of several splits share most of the images that are looked at.

    Args:
        model: In evaluation mode.
        items: Images.
        groups: Indices of the images that each PCA may see.
        seed: Seed of the choice.
        on_step: Is told how many images were done.
        activate: Apply the ReLU to features that the network gives without it.

    Raises:
        DataError: If there is nothing to fit to.
    """
    order = np.random.default_rng(seed).permutation(len(items)).tolist()
    chosen = []
    for group in groups:
        members = set(group)
        chosen.append(set([i for i in order if i in members][:PCA_IMAGES]))
    union = set().union(*chosen)
    moments = [FeatureMoments(model.reduction.channels_in) for _ in groups]
    angles = model.config.angles
    batches = image_batches(items, PCA_BATCH, lambda i, e: None, order=(i for i in order if i in union))
    for number, (indices, images) in enumerate(batches):
        for granularity in range(len(model.config.granularities)):
            angle = angles[number % len(angles)]
            features = model.features_at(images.to(model.mean.device), granularity, [angle])
            features = features.relu() if activate else features
            usable = features.flatten(1).abs().amax(1) < LARGEST  # the others are reported when rows are made of them
            for own, members in zip(moments, chosen, strict=True):
                if mine := [k for k, index in enumerate(indices) if index in members and usable[k]]:
                    own.add(features[mine])
        on_step(len(images))
    reductions = []
    for own in moments:
        if own.count < 2:
            raise DataError("no image could be read that the PCA could be fitted to, or none has finite features")
        reduction = copy.deepcopy(model.reduction)
        reduction.fit(own)
        reductions.append(reduction)
    return reductions


def pca_images(groups: Sequence[Collection[int]]) -> int:
    """About how many images :func:`fit_reductions` looks at, for a progress bar."""
    return min(len(set().union(*groups)), PCA_IMAGES * (1 if len(groups) == 1 else 2))


@torch.inference_mode()
def calibration_views(model: MGCAP, items: Sequence[Item], seed: int = 0) -> list[Tensor]:
    """Normalised views of (a seeded choice of) the training images, to quantise with: every rotation gets its turn."""
    c = model.config
    chosen = np.random.default_rng(seed).permutation(len(items))
    chosen = np.resize(chosen, min(CALIBRATION_VIEWS, 4 * len(items)))  # of few images several views each
    views: list[Tensor] = []
    for _, images in image_batches(items, 1, lambda i, e: None, order=chosen.tolist()):
        turn = len(views)
        angle = c.angles[turn % len(c.angles)]
        view = model.views_at(images.to(model.mean.device), turn % len(c.granularities), [angle])[0, 0]
        views.append(view.cpu().contiguous())
    return views


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
    rows = _large(len(keys), vector_length(extractor.variants[variant].side, config.vector))
    device = extractor.model.head.weight.device
    for start in range(0, len(keys), BLOCK):
        pooled = extractor.pooled(keys[start : start + BLOCK], variant, config.rotations, chosen)
        rows[start : start + BLOCK] = describe(pooled.to(device), config).cpu()
    return rows


def shared_descriptors(
    extractor: Extractor, items: Sequence[Item], on_error: OnError, on_step: Step = lambda n: None
) -> tuple[Tensor | None, list[int]]:
    """Descriptors ``[n, d]`` of the images that can be read, and which these are; every process computes its part.

    Args:
        extractor: Computes and keeps what is missing.
        items: Images, the same on every process.
        on_error: Is told of each image that this process could not read.
        on_step: Is told how many images were done.

    Returns:
        The first process has the descriptors; the others have None.
    """
    own = own_part(range(len(items)))
    found = extractor.fill([items[i] for i in own], lambda k, error: on_error(own[k], error), on_step)
    rows = cached_descriptors(extractor, [key for key in found if key])
    readable = torch.zeros(len(items), dtype=torch.int64)
    readable[[i for i, key in zip(own, found, strict=True) if key]] = 1
    kept = total(readable.to(extractor.model.mean.device)).nonzero().flatten().tolist()
    places = [[k for k, i in enumerate(kept) if i % processes() == r] for r in range(processes())]
    return gather_rows(rows, places, _large), kept


def _large(count: int, length: int) -> Tensor:
    """Uninitialised float32 ``[count, length]``: in memory, or in a file without a name when it is large."""
    if 4 * count * length <= MEMORY_BYTES:
        return torch.empty(count, length)
    with tempfile.TemporaryFile(dir=cache_dir() if cache_dir().is_dir() else None) as file:
        return torch.from_numpy(np.memmap(file, np.float32, "w+", shape=(count, length)))


@torch.inference_mode()
def stream_descriptors(
    model: MGCAP, items: Sequence[Item], on_error: OnError, on_step: Step = lambda n: None
) -> Iterator[tuple[list[int], Tensor]]:
    """Descriptors of images, in order and in blocks, with nothing kept: ``(indices, [n, d])``."""
    variants = [Variant.of(model)]
    kinds = all_kinds(model, variants)
    images = image_batches(items, images_together(model.config.rotations, model.mean.device.type), on_error)
    indices: list[int] = []
    pooled: list[Tensor] = []
    for index, matrices in pooled_matrices(model, variants, local_features(model, images), kinds):
        if error := unusable(items[index], matrices.values()):
            on_error(index, error)
            continue
        indices.append(index)
        pooled.append(torch.stack([matrices[kind] for kind in kinds]))
        if len(indices) == BLOCK:
            yield indices, model.descriptor_of(torch.stack(pooled))
            on_step(len(indices))
            indices, pooled = [], []
    if indices:
        yield indices, model.descriptor_of(torch.stack(pooled))
        on_step(len(indices))
