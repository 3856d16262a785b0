from __future__ import annotations

import pytest

from mgcap.data.catalogue import CATALOGUE, differences, recognise


def test_published_sizes() -> None:
    sizes = {key: (len(d.classes), d.total) for key, d in CATALOGUE.items()}
    assert sizes == {
        "ucmerced": (21, 2100),
        "aid": (30, 10000),
        "nwpu-resisc45": (45, 31500),
        "rsscn7": (7, 2800),
        "eurosat": (10, 27000),
        "whu-rs19": (19, 1005),
        "optimal-31": (31, 1860),
        "patternnet": (38, 30400),
    }


@pytest.mark.parametrize("key", CATALOGUE)
def test_counts_add_up_and_classes_are_recognised(key: str) -> None:
    dataset = CATALOGUE[key]
    total = sum(dataset.counts.values())
    assert total == dataset.total if dataset.exact else total <= dataset.total
    assert recognise(dataset.classes) is dataset
    assert recognise([name.upper().replace("_", " ") for name in dataset.classes]) is dataset
    assert dataset.home.startswith("http") and dataset.licence


def test_differences() -> None:
    dataset = CATALOGUE["rsscn7"]
    counts = {**dataset.counts, "gParking": 399, "extra": 1}
    del counts["aGrass"]
    assert differences(dataset, counts) == [
        "class aGrass is missing",
        "class gParking has 399 images instead of 400",
        "class extra is not part of it",
    ]
    assert recognise(["cat", "dog"]) is None
    assert differences(CATALOGUE["whu-rs19"], dict.fromkeys(CATALOGUE["whu-rs19"].classes, 55)) == []
