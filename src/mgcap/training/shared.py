"""Descriptors that several processes compute together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mgcap.data.samples import part_of
from mgcap.data.stream import Item, OnError
from mgcap.inference.descriptors import cached_descriptors, large_rows
from mgcap.inference.extraction import Extractor, Step
from mgcap.training.distributed import gather_rows, own_part, processes, total


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
    found = extractor.fill(part_of(items, own), lambda k, error: on_error(own[k], error), on_step)
    rows = cached_descriptors(extractor, [key for key in found if key])
    readable = torch.zeros(len(items), dtype=torch.int64)
    readable[[i for i, key in zip(own, found, strict=True) if key]] = 1
    kept = total(readable.to(extractor.model.mean.device)).nonzero().flatten().tolist()
    places = [[k for k, i in enumerate(kept) if i % processes() == r] for r in range(processes())]
    return gather_rows(rows, places, large_rows), kept
