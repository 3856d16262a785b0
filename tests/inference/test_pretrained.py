from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mgcap import MGCAP, SceneClassifier
from mgcap.backbones import build_backbone
from mgcap.backbones import pretrained as weights
from mgcap.data.folders import open_folder
from mgcap.errors import MgcapError
from mgcap.inference import pretrained, universal
from tests.backbones.fakes import publish
from tests.conftest import TINY
from tests.test_descriptor import _descriptor

CONFIG: dict[str, Any] = {k: v for k, v in TINY.items() if k not in ("weights", "engine")}


@pytest.fixture(scope="module")
def saved(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[SceneClassifier, Path]:
    folder = open_folder(scenes)
    path = tmp_path_factory.mktemp("models") / "m.mgcap"
    model = SceneClassifier(**TINY, cache=False).fit(folder.paths, folder.labels)
    model.save(path)
    return model, path


def test_a_preset_has_the_weights_of_its_backbone_and_a_fresh_head(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(3)
    state = build_backbone("alexnet").state_dict()
    publish(monkeypatch, "alexnet", weights.state_hash(state))
    path = weights.cached_path("alexnet")
    path.parent.mkdir(parents=True)
    save_file(state, path)
    torch.manual_seed(1)
    model = MGCAP.from_pretrained("compact", num_classes=5, **CONFIG)
    assert model.head.out_features == 5 and not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.backbones[0].state_dict().items())
    torch.manual_seed(1)
    again = MGCAP.from_pretrained("compact", num_classes=5, **CONFIG)
    other = MGCAP.from_pretrained("compact", num_classes=5, **CONFIG)
    assert torch.equal(model.head.weight, again.head.weight) and not torch.equal(model.head.weight, other.head.weight)


def test_the_axes_of_the_universal_descriptor_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _descriptor()
    monkeypatch.setattr(universal, "shipped_descriptors", lambda: (found,))
    model = MGCAP.from_pretrained("compact", num_classes=3, weights="random", **CONFIG)
    assert torch.equal(model.reduction.basis, found.basis[:8]) and bool(model.reduction.fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model(torch.rand(1, 3, 64, 64))


def test_paper_has_no_axes(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"backbone": "alexnet", "size": 64, "rotations": 1, "granularities": 1.0}
    model = MGCAP.from_pretrained("paper", num_classes=3, weights="random", **small)
    assert model.config.preset == "paper" and model.config.reduction == "none"


def test_a_saved_model(saved: tuple[SceneClassifier, Path]) -> None:
    classifier, path = saved
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        expected = classifier.model_(images)
        for same in (MGCAP.from_pretrained(path), MGCAP.from_pretrained(str(path), num_classes=4)):
            assert torch.equal(same(images), expected)
        fresh = MGCAP.from_pretrained(path, num_classes=7)
        assert fresh(images).shape == (2, 7)
        assert torch.equal(fresh.descriptor(images), classifier.model_.descriptor(images))
        turned = MGCAP.from_pretrained(path, rotations=4)
    assert turned.config.rotations == 4 and torch.equal(turned.head.weight, classifier.model_.head.weight)
    assert all(parameter.requires_grad for parameter in turned.parameters())


def test_what_cannot_be_had_is_said_in_one_sentence(saved: tuple[SceneClassifier, Path]) -> None:
    _, path = saved
    for arguments, values, sentence in (
        (("compct", 3), {}, "neither a model .* nor the file of one .did you mean 'compact'"),
        (("none.mgcap",), {}, "'none.mgcap' is neither a model"),
        (("compact",), {}, "num_classes: say how many classes"),
        (("compact", 1), {}, "num_classes"),
        (("compact", 3), {"rotation": 4}, "'rotation' is not .* .did you mean 'rotations'"),
        (("compact", 3), {"device": "nonsense"}, "device 'nonsense'"),
        ((path,), {"channels": 4}, "do not fit a model with other values of channels"),
        ((path,), {"rotations": 0}, r"^rotations: .* .given: 0.$"),
        (("compact", 3), {"vector": "tringle"}, "^vector: .* .did you mean 'triangle'"),
    ):
        with pytest.raises(MgcapError, match=sentence) as caught:
            MGCAP.from_pretrained(*arguments, **values)
        assert "\n" not in str(caught.value)
    assert pretrained.PRESETS.keys() == {"compact", "tiny", "paper", "authors-code"}
