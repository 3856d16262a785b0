from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from mgcap import MGCAP, MGCAPConfig, SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.data.images import read_image
from mgcap.errors import ImageError
from mgcap.inference import extraction
from mgcap.inference.extraction import Extractor
from mgcap.inference.forward import Variant, describe, rotation_counts
from mgcap.persistence.cache import FeatureCache
from mgcap.persistence.files import cache_dir
from mgcap.reduction import Reduction
from tests.conftest import TINY
from tests.inference.plain import PlainEngine

CONFIG = MGCAPConfig(backbone="alexnet", channels=6, size=64, rotations=4, granularities=(1.0, 0.8))


def _model(config: MGCAPConfig = CONFIG) -> MGCAP:
    torch.manual_seed(0)
    return MGCAP(config).eval().requires_grad_(False)


def _fail(index: int, error: Exception) -> None:
    raise error


def test_the_divisors_are_contained() -> None:
    assert rotation_counts(12) == (1, 2, 3, 4, 6, 12)
    assert rotation_counts(7) == (1, 7)


def _extractor(model: MGCAP, fingerprint: str, cache: FeatureCache, variants: list[Variant] | None = None) -> Extractor:
    return Extractor(model, PlainEngine(model, fingerprint), cache, variants)


@pytest.mark.parametrize("pooling", ["max", "mean"])
def test_one_pass_gives_what_models_with_fewer_rotations_give(scenes: Path, tmp_path: Path, pooling: str) -> None:
    model = _model(CONFIG.replace(rotation_pooling=pooling))
    paths = open_folder(scenes).paths[:3]
    extractor = _extractor(model, "torch", FeatureCache(tmp_path), [Variant.of(model, nested=True)])
    keys = [key for key in extractor.fill(paths, _fail) if key]
    images = torch.stack([read_image(p) for p in paths])
    for count in (1, 2, 4):
        for chosen in ((0, 1), (1,)):
            parts = tuple(CONFIG.granularities[g] for g in chosen)
            own = _model(model.config.replace(rotations=count, granularities=parts))
            pooled = extractor.pooled(keys, count=count, granularities=chosen)
            with torch.no_grad():
                assert torch.allclose(describe(pooled, own.config), own.descriptor(images), atol=2e-3)


def test_variants_share_the_pass(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another PCA, covariance or activation costs no second look by the network."""
    raw = _model(CONFIG.replace(activated=False, reduction="none", channels=None))
    base = raw.config
    variants = [
        Variant(base.replace(activated=True), raw.reduction, (4,)),
        Variant(base.replace(embedding="covariance"), raw.reduction, (4,)),
        Variant(base.replace(reduction="pca", channels=5), Reduction("pca", 256, 5), (4,)),
    ]
    paths = open_folder(scenes).paths[:2]
    views: list[int] = []
    look = MGCAP.local_features
    monkeypatch.setattr(MGCAP, "local_features", lambda self, v, g=0: views.append(len(v)) or look(self, v, g))
    extractor = _extractor(raw, "torch", FeatureCache(tmp_path), variants)
    keys = [key for key in extractor.fill(paths, _fail) if key]
    assert sum(views) == 2 * 4 * 2
    monkeypatch.undo()
    images = torch.stack([read_image(p) for p in paths])
    for number, variant in enumerate(variants):
        own = _model(variant.config)
        own.load_backbone(raw.backbones[0].state_dict())
        with torch.no_grad():
            mine = describe(extractor.pooled(keys, number), own.config)
            assert torch.allclose(mine, own.descriptor(images), atol=3e-3)


def test_a_second_run_looks_at_nothing(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = open_folder(scenes).paths
    first = _extractor(_model(), "torch", FeatureCache(tmp_path))
    keys = first.fill(paths, _fail)
    monkeypatch.setattr(MGCAP, "local_features", None)
    steps: list[int] = []
    fewer = _extractor(_model(CONFIG.replace(granularities=(0.8,))), "torch", FeatureCache(tmp_path))
    assert fewer.fill(paths[3:], _fail, steps.append) == keys[3:] and sum(steps) == len(paths) - 3
    other = _extractor(_model(), "openvino", FeatureCache(tmp_path))
    with pytest.raises(TypeError):
        other.fill(paths[:1], _fail)


def test_recipes_differ_where_rows_would(tmp_path: Path) -> None:
    model = _model()
    names = {next(iter(_extractor(model, own, FeatureCache(tmp_path)).stores.values())).folder for own in "ab"}
    changed = [
        _model(CONFIG.replace(**change))
        for change in ({"ridge": 1e-3}, {"size": 96}, {"rotations": 2}, {"feature_norm": "l2"}, {"field_of_view": 0.5})
    ]
    fitted, other = _model(), _model()
    fitted.reduction.mean.add_(1)
    next(other.backbones.parameters()).add_(1)
    for each in (*changed, fitted, other):
        names.add(next(iter(_extractor(each, "a", FeatureCache(tmp_path)).stores.values())).folder)
    assert len(names) == 9
    same = _model(CONFIG.replace(normalisation="log", vector="full", num_classes=7))
    assert next(iter(_extractor(same, "a", FeatureCache(tmp_path)).stores.values())).folder in names


def test_errors_are_reported_and_passed_over(scenes: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_text("no")
    paths = [broken, *open_folder(scenes).paths[:2], tmp_path / "none.png"]
    errors: list[int] = []
    steps: list[int] = []
    keys = _extractor(_model(), "t", FeatureCache(memory=True)).fill(paths, lambda i, e: errors.append(i), steps.append)
    assert sorted(errors) == [0, 3] and [key is None for key in keys] == [True, False, False, True] and sum(steps) == 4


_CHILD = """
import sys, torch
from pathlib import Path
from mgcap.persistence.cache import FeatureCache
from mgcap.data.folders import open_folder
from mgcap.inference import extraction
sys.path.insert(0, sys.argv[3])
from tests.inference.plain import PlainEngine
from tests.inference.test_extraction import _model, _fail
torch.set_num_threads(1)
extraction.CHUNK = 4
model = _model()
extractor = extraction.Extractor(model, PlainEngine(model, "torch"), FeatureCache(Path(sys.argv[2])))
extractor.fill(open_folder(sys.argv[1]).paths, _fail)
"""


def _start(scenes: Path, cache: Path) -> subprocess.Popen[bytes]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "MGCAP_HOME": str(cache / "home")}
    return subprocess.Popen([sys.executable, "-c", _CHILD, str(scenes), str(cache), root], env=environment)


def _content(cache: Path) -> dict[str, bytes]:
    return {str(p.relative_to(cache)): p.read_bytes() for p in sorted(cache.rglob("*.safetensors"))}


def test_killed_at_any_moment_and_by_two_at_once_the_cache_is_the_same(scenes: Path, tmp_path: Path) -> None:
    assert _start(scenes, tmp_path / "whole").wait() == 0
    whole = _content(tmp_path / "whole")
    assert len(whole) == 2 * 6  # granularities x chunks of 4
    killed = tmp_path / "killed"
    rng = random.Random(0)
    for _ in range(4):
        process = _start(scenes, killed)
        deadline = time.time() + rng.uniform(1.5, 6)
        while process.poll() is None and time.time() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = _content(killed)
        assert found.items() <= whole.items()
    pair = [_start(scenes, killed), _start(scenes, killed)]
    assert [process.wait() for process in pair] == [0, 0]
    assert _content(killed) == whole


def test_two_at_once_share_the_work(scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "CHUNK", 4)
    paths = open_folder(scenes).paths
    looked: list[int] = []
    sample = MGCAP.views_at

    def views_at(self: MGCAP, images: torch.Tensor, *rest: object) -> torch.Tensor:
        looked.append(len(images))
        return sample(self, images, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(MGCAP, "views_at", views_at)
    extractors = [_extractor(_model(), "torch", FeatureCache(tmp_path)) for _ in range(2)]
    results: list[object] = []
    threads = [threading.Thread(target=lambda e=e: results.append(e.fill(paths, _fail))) for e in extractors]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1] and None not in results[0]
    assert sum(looked) <= 2 * (len(paths) + 4)  # twice for the granularities; a chunk at most is done twice


def _head(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    scenes = open_folder(folder)
    head = SceneClassifier(**TINY, rotation_pooling="mean").fit(scenes.paths, scenes.labels).model_.head
    return head.weight.clone(), head.bias.clone()


def test_a_damaged_cache_gives_the_same_head(scenes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "CHUNK", 4)
    clean = _head(scenes)
    chunks = sorted((cache_dir() / "features").rglob("*.safetensors"))
    whole = [path.read_bytes() for path in chunks]
    assert len(chunks) == 6
    rng = random.Random(0)
    for number, (path, data) in enumerate(zip(chunks, whole, strict=True)):
        start = 8 + int.from_bytes(data[:8], "little")  # of the tensors
        place = (0, 8 + rng.randrange(start - 8), start, start + 200, len(data) - 1, len(data) // 2)[number]
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :])
    assert all(map(torch.equal, _head(scenes), clean))
    assert [path.read_bytes() for path in chunks] == whole


def test_an_image_whose_features_are_not_finite_is_passed_over(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = open_folder(scenes).paths
    bad = torch.full((3, 64, 64), 0.123)
    look = MGCAP.views_at

    def views_at(self: MGCAP, images: torch.Tensor, *rest: object) -> torch.Tensor:
        views = look(self, images, *rest)  # type: ignore[arg-type]
        views[(images == 0.123).flatten(1).all(1)] = float("nan")
        return views

    monkeypatch.setattr(MGCAP, "views_at", views_at)
    errors: dict[int, ImageError] = {}
    keys = _extractor(_model(), "t", FeatureCache(tmp_path)).fill([*paths[:3], bad, *paths[3:5]], errors.__setitem__)
    assert list(errors) == [3] and "not finite" in str(errors[3]) and keys.index(None) == 3
    items = [read_image(p) for p in paths]
    labels = [p.parent.name for p in paths]
    clean = SceneClassifier(**TINY).fit(items, labels)
    fitted = SceneClassifier(**TINY).fit([*items, bad], [*labels, labels[0]])  # it is looked at by the PCA as well
    assert [i for i, _ in fitted.skipped_] == [len(items)] and isinstance(fitted.skipped_[0][1], ImageError)
    assert torch.isfinite(fitted.model_.head.weight).all()
    assert fitted.predict(items[:4]).tolist() == clean.predict(items[:4]).tolist()
    with pytest.raises(ImageError, match="not finite"):
        fitted.predict([bad])
