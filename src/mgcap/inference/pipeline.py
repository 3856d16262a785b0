"""Stages that overlap: decoding, view sampling, network; the reader does embedding and pooling meanwhile.

Every stage is a generator; :func:`prefetch` lets one run in a thread of its own, a bounded number of pieces ahead.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from mgcap.inference.engines import Engine, check_current
from mgcap.model import MGCAP, SAMPLED_VIEWS

T = TypeVar("T")

#: Views that go to the engine together at least, if there are as many.
VIEWS_TOGETHER = 16


class _Failure(NamedTuple):
    error: BaseException


def prefetch(source: Iterable[T], ahead: int = 1) -> Generator[T, None, None]:
    """Run a generator in a thread, at most ``ahead`` pieces before its reader; order and errors are kept."""
    pieces: queue.Queue[T | _Failure | None] = queue.Queue(ahead)
    stopped = threading.Event()

    def put(piece: T | _Failure | None) -> bool:
        while not stopped.is_set():
            try:
                pieces.put(piece, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        iterator = iter(source)
        try:
            with torch.inference_mode():
                for piece in iterator:
                    if not put(piece):
                        return
            put(None)
        except BaseException as error:  # the reader raises it
            put(_Failure(error))
        finally:
            if hasattr(iterator, "close"):
                iterator.close()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while (piece := pieces.get()) is not None:
            if isinstance(piece, _Failure):
                raise piece.error
            yield piece
    finally:
        stopped.set()
        thread.join()


class Piece(NamedTuple):
    """Local features of some images at one granularity and some consecutive rotations."""

    indices: list[int]
    granularity: int
    first_rotation: int
    features: Tensor  #: [B, r, C, N]
    last: bool  #: whether nothing more comes of these images


def images_together(rotations: int, engine_device: str) -> int:
    """How many images to look at together: few on a CPU, where memory counts; more where a GPU wants to be fed."""
    views = VIEWS_TOGETHER if engine_device == "cpu" else 16 * VIEWS_TOGETHER
    return max(1, views // rotations)


def stream_features(
    model: MGCAP,
    batches: Iterable[tuple[list[int], Tensor]],
    engine: Engine | None = None,
    granularities: Sequence[int] | None = None,
) -> Iterator[Piece]:
    """Local features of batches of images, in order, in bounded memory.

    Sampling and network have a thread each, unless both are torch on a CPU: two teams of its threads on the same cores
    take a tenth longer than one after the other.
    """
    chosen = range(len(model.config.granularities)) if granularities is None else granularities
    angles = model.config.angles
    device = model.head.weight.device

    def sample() -> Iterator[Piece]:
        for indices, images in batches:
            images = images.to(device)
            step = max(1, SAMPLED_VIEWS // len(images))
            for g in chosen:
                for start in range(0, len(angles), step):
                    last = g == chosen[-1] and start + step >= len(angles)
                    yield Piece(indices, g, start, model.views_at(images, g, angles[start : start + step]), last)

    def compute(views: Iterable[Piece]) -> Iterator[Piece]:
        for piece in views:
            features = network(piece.features.flatten(0, 1), piece.granularity).to(model.mean.dtype)
            yield piece._replace(features=features.reshape(*piece.features.shape[:2], *features.shape[1:]))

    if engine is not None:
        check_current(engine, model)
    network = model.local_features if engine is None else engine.features
    if engine is None or not engine.overlaps:
        return compute(sample())
    return prefetch(compute(prefetch(sample())))
