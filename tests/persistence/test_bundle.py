from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from mgcap.classifier import SceneClassifier, load
from mgcap.config import MGCAPConfig
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.errors import BundleError, ImageError, MgcapError, WeightsError
from mgcap.persistence.bundle import FORMAT_VERSION, Bundle, read_bundle, write_bundle
from tests.conftest import TINY
from tests.mutations import mutate


def _bundle() -> Bundle:
    return Bundle(
        config=MGCAPConfig(num_classes=2, rotations=3, channels=2),
        classes=("a", "b"),
        backbone={"name": "resnet50-v1", "stock": True, "sha256": "0", "source": "somewhere"},
        tensors={
            "head.weight": torch.arange(12.0).reshape(2, 6),
            "head.bias": torch.zeros(2),
            "reduction.basis": torch.ones(2, 1024),
            "reduction.mean": torch.zeros(1024),
            "reduction.fitted": torch.tensor(True),
        },
        provenance={"data": "x"},
        metrics={"accuracy": 0.5},
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "m.mgcap", _bundle(), {"size": 224})
    return tmp_path / "m.mgcap"


def _rewrite(path: Path, change) -> None:
    with safe_open(path, "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118
        header = json.loads(f.metadata()["mgcap"])
    change(header, tensors)
    save_file(tensors, path, {"mgcap": json.dumps(header)})


def test_there_and_back(file: Path) -> None:
    again, before = read_bundle(file), _bundle()
    assert (again.config, again.classes, again.backbone) == (before.config, before.classes, before.backbone)
    assert (again.provenance, again.metrics) == (before.provenance, before.metrics)
    assert torch.equal(again.tensors["head.weight"], before.tensors["head.weight"])


def test_it_is_plain_safetensors_with_a_json_header(file: Path) -> None:
    with safe_open(file, "pt") as f:
        header = json.loads(f.metadata()["mgcap"])
    assert header["format_version"] == FORMAT_VERSION and header["classes"] == ["a", "b"]
    assert header["preprocessing"] == {"size": 224}
    assert b"pickle" not in file.read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_truncated_files_are_refused(file: Path, share: float) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(BundleError, match="truncated") as caught:
        read_bundle(file)
    assert "\n" not in str(caught.value)


def test_foreign_files_are_refused(file: Path, tmp_path: Path) -> None:
    save_file({"x": torch.zeros(1)}, file)
    with pytest.raises(BundleError, match="not an mgcap model"):
        read_bundle(file)
    torch.save({"x": torch.zeros(1)}, file)
    with pytest.raises(BundleError, match="not an mgcap model"):
        read_bundle(file)
    with pytest.raises(BundleError, match="there is no model file"):
        read_bundle(tmp_path / "nothing.mgcap")
    save_file({"x": torch.zeros(1)}, file, {"mgcap": "{not json"})
    with pytest.raises(BundleError, match="damaged header"):
        read_bundle(file)


def test_newer_files_are_refused(file: Path) -> None:
    _rewrite(file, lambda header, tensors: header.update(format_version=99))
    with pytest.raises(BundleError, match="newer mgcap"):
        read_bundle(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, tensors: tensors["head.bias"].add_(1),
        lambda header, tensors: header.update(classes=["b", "a"]),
        lambda header, tensors: header["config"].update(rotations=4),
        lambda header, tensors: header.pop("digest"),
        lambda header, tensors: tensors.update(extra=torch.zeros(1)),
    ],
)
def test_tampering_is_noticed(file: Path, change) -> None:
    _rewrite(file, change)
    with pytest.raises(BundleError, match="altered or damaged"):
        read_bundle(file)


def test_a_flipped_bit_is_noticed(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(BundleError, match="altered or damaged"):
        read_bundle(file)


def test_what_cannot_be_written_leaves_the_old_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mgcap.persistence.bundle.save_file", full)
    with pytest.raises(BundleError, match="No space left"):
        write_bundle(file, _bundle(), {})
    assert file.read_bytes() == before
    assert [p.name for p in file.parent.iterdir()] == ["m.mgcap"]


def test_no_altered_file_is_more_than_one_sentence(tmp_path: Path) -> None:
    """300 seeded ways; what loads gives probabilities."""
    labels = [name for name in CLASSES[:3] for _ in range(4)]
    scenes = [draw_scene(name, 0, index, 32) for index, name in enumerate(labels)]
    small = {**TINY, "layer": "conv1", "channels": 4, "size": 32}
    whole, altered = tmp_path / "m.mgcap", tmp_path / "altered.mgcap"
    SceneClassifier(**small).fit(scenes, labels).save(whole)
    refused = 0
    for seed in range(300):
        mutate(whole, altered, seed)
        try:
            model = load(altered, engine="torch")
        except (BundleError, WeightsError) as error:
            assert "\n" not in str(error) and len(str(error)) < 500, seed
            refused += 1
            continue
        try:
            found = model.predict_proba(scenes[:1])
            assert found.shape == (1, len(model.classes_)) and np.isfinite(found).all(), seed
            if model.sample_ is not None:
                assert model.is_unknown(scenes[:1], 0.05).shape == (1,), seed
        except ImageError as error:  # weights that are finite may give features that are not
            assert "not finite" in str(error), seed
        try:
            assert 0 <= model.reject_threshold(0.05) <= 1, seed
        except MgcapError as error:
            assert "no held-out confidence" in str(error), seed
    assert 150 < refused < 290
