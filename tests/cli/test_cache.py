from __future__ import annotations

from pathlib import Path

import torch

from mgcap.persistence.cache import FeatureCache
from tests.cli.run import SMALL, run, sentence


def test_training_fills_the_cache_and_prune_empties_it(scenes: Path, tmp_path: Path) -> None:
    assert "0.0 MiB" in run("cache", "info").stderr
    first = run("train", scenes, "--out", tmp_path / "a.mgcap", *SMALL)
    table = run("cache", "info").stdout
    assert "alexnet" in table and "pca 8" in table and " 24 " in table
    again = run("train", scenes, "--out", tmp_path / "b.mgcap", *SMALL)
    assert first.exit_code == again.exit_code == 0
    assert run("cache", "info").stdout.count("alexnet") == 2  # two granularities, still
    assert "removed 0" in run("cache", "prune", "--older-than", 1).stderr
    assert "removed 0" in run("cache", "prune", "--keep-gib", 1).stderr
    assert "removed 2" in run("cache", "prune", "--keep-gib", 0).stderr
    run("train", scenes, "--out", tmp_path / "c.mgcap", "--no-cache", *SMALL)
    assert "0.0 MiB" in run("cache", "info").stderr
    assert "removed 0" in run("cache", "prune", "--all").stderr


def test_features_of_every_kind_are_listed() -> None:
    cache = FeatureCache()
    cache.store({"kind": "colour histogram"}).add([b"0" * 32], torch.ones(1, 3))
    cache.store({"kind": "lower layers", "backbone": "vgg16", "before": "conv5_1"}).add([b"0" * 32], torch.ones(1, 3))
    table = run("cache", "info").stdout
    assert "colour histogram" in table and "vgg16 conv5_1" in table


def test_prune_asks_what_to_remove() -> None:
    assert "--keep-gib" in sentence("cache", "prune")
