from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from mgcap import MGCAP, MGCAPConfig
from mgcap.inference.pipeline import images_together, prefetch, stream_features


def test_prefetch_keeps_order_and_runs_elsewhere() -> None:
    threads: set[int] = set()

    def source() -> Iterator[int]:
        for number in range(20):
            threads.add(threading.get_ident())
            yield number

    assert list(prefetch(source())) == list(range(20))
    assert threading.get_ident() not in threads


def test_prefetch_overlaps_with_its_reader() -> None:
    def slow() -> Iterator[int]:
        for number in range(5):
            time.sleep(0.1)
            yield number

    start = time.perf_counter()
    for _ in prefetch(slow()):
        time.sleep(0.1)
    assert time.perf_counter() - start < 0.85  # one after the other would take 1.0


def test_prefetch_does_not_run_away() -> None:
    made: list[int] = []

    def source() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    reader = prefetch(source(), ahead=2)
    next(reader)
    time.sleep(0.3)
    assert len(made) <= 4
    reader.close()
    time.sleep(0.2)
    assert len(made) <= 5 and threading.active_count() < 20


def test_prefetch_raises_what_its_source_raised() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise KeyError("lost")

    reader = prefetch(source())
    assert next(reader) == 1
    with pytest.raises(KeyError, match="lost"):
        next(reader)


@pytest.mark.parametrize("rotations", [3, 60])
def test_streamed_features_are_the_models_own(rotations: int) -> None:
    torch.manual_seed(0)
    config = MGCAPConfig(backbone="alexnet", channels=6, size=64, rotations=rotations, granularities=(1.0, 0.8))
    model = MGCAP(config).eval()
    images = torch.rand(2, 3, 70, 70)
    pieces = list(stream_features(model, [([4, 5], images)]))
    assert [piece.last for piece in pieces].count(True) == 1 and pieces[-1].last
    for piece in pieces:
        count = piece.features.shape[1]
        assert piece.indices == [4, 5]
        with torch.no_grad():
            angles = config.angles[piece.first_rotation : piece.first_rotation + count]
            own = model.features_at(images, piece.granularity, angles)
        assert torch.allclose(piece.features, own, atol=1e-5)
    assert sum(piece.features.shape[1] for piece in pieces) == 2 * rotations
    assert {piece.granularity for piece in stream_features(model, [([0], images[:1])], granularities=[1])} == {1}


def test_few_rotations_mean_more_images_together() -> None:
    assert images_together(1, "cpu") == 16 and images_together(12, "cpu") == 1 and images_together(360, "cpu") == 1
    assert images_together(12, "cuda") > 12
