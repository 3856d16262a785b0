"""Vectors and classes that a model keeps."""

import numpy as np
import torch

from mgcap.inference.examples import Examples, apart, joined, moved, places_used, settled


def _examples(seed: int, count: int = 20) -> Examples:
    rng = np.random.default_rng(seed)
    return Examples(
        torch.from_numpy(rng.normal(size=(count, 5)).astype(np.float16)),
        torch.from_numpy(rng.integers(0, 3, count).astype(np.int32)),
        torch.from_numpy(rng.random((count, 2))),
    )


def _rows(examples: Examples) -> list[tuple]:
    return [
        (tuple(v), int(t), tuple(p))
        for v, t, p in zip(examples.vectors.tolist(), examples.targets, examples.places.tolist(), strict=True)
    ]


def test_order_and_repetition_do_not_count():
    one, two = _examples(0), _examples(1)
    first, second = joined([one, two]).ordered(), joined([two, one, two]).ordered()
    assert _rows(first) == _rows(second) and len(first) == 40
    assert sorted(_rows(first)) == sorted(_rows(one) + _rows(two))
    assert first.bytes == 40 * (5 * 2 + 4 + 16)


def test_the_same_vector_elsewhere_is_another_example():
    one = _examples(0)
    moved = Examples(one.vectors, one.targets, one.places + 1)
    assert len(joined([one, moved]).ordered()) == 40
    assert len(one.part(torch.zeros(0, dtype=torch.int64)).ordered()) == 0


def test_classes_get_other_numbers_and_removed_ones_go():
    one = _examples(0)
    found = one.renumbered([1, -1, 0])
    assert len(found) == int((one.targets != 1).sum())
    assert sorted(found.targets.tolist()) == sorted(1 - t // 2 for t in one.targets.tolist() if t != 1)


def test_contradictions_are_left_out_and_other_cells_of_the_place_stay():
    one = _examples(0)
    other = Examples(one.vectors.clone(), (one.targets + 1) % 3, one.places)
    other.vectors[0] = -other.vectors[0]  # another raster of the same land
    other.targets[1] = one.targets[1]
    found, count = settled(one, other)
    assert count == 18
    assert sorted(_rows(found)) == sorted(_rows(one.part(torch.tensor([0, 1]))) + _rows(other.part(torch.tensor([0]))))
    assert settled(one, _examples(1))[1] == 0


def test_rasters_without_a_place_are_moved_past_others():
    one = _examples(0)
    assert (
        places_used(one) == 1
        and places_used(moved(one, 2)) == 3
        and places_used(one.part(torch.tensor([]).long())) == 0
    )
    images = Examples(one.vectors, one.targets, torch.from_numpy(apart(20)))
    assert places_used(images) == 0


def test_images_without_a_place_are_no_neighbours():
    places = apart(50)
    assert np.diff(np.sort(places[:, 0])).min() >= 1e6
