from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from mgcap import MGCAP, MGCAPConfig, SceneClassifier, SceneDescriptor
from mgcap.backbones.pretrained import state_hash
from mgcap.data.folders import open_folder
from mgcap.data.stream import to_tensor
from mgcap.errors import MgcapError
from mgcap.evaluation.summary import evaluate_model
from mgcap.inference import universal
from mgcap.inference.engines.torch import TorchEngine
from mgcap.inference.preparation import build_model
from mgcap.inference.universal import Card, UniversalDescriptor, read_descriptor, write_descriptor
from mgcap.runtime import Progress, Runtime
from tests.conftest import TINY


def _descriptor(channels: int = 10) -> UniversalDescriptor:
    """Axes for the network of TINY."""
    config = MGCAPConfig(**{k: v for k, v in TINY.items() if k in MGCAPConfig.model_fields})
    model, _ = build_model(config, "random", Runtime(device="cpu"))
    generator = torch.Generator().manual_seed(3)
    basis = torch.linalg.qr(torch.randn(256, channels, generator=generator)).Q.T.contiguous()
    card = Card(
        name="test",
        version=1,
        backbone="alexnet",
        layer="conv5",
        activated=True,
        size=64,
        network=state_hash(model.backbones[0].state_dict()),
        fitted_to="nothing",
    )
    return UniversalDescriptor(card, basis, torch.rand(256, generator=generator), {})


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> UniversalDescriptor:
    found = _descriptor()
    monkeypatch.setattr(universal, "shipped_descriptors", lambda: (found,))
    return found


def test_a_universal_descriptor_needs_no_fitting(scenes: Path, shipped: UniversalDescriptor) -> None:
    folder = open_folder(scenes)
    model = SceneClassifier(**TINY).fit(folder.paths, folder.labels)
    assert torch.equal(model.model_.reduction.basis, shipped.basis[:8])  # the first axes, for fewer channels
    assert model.provenance_["descriptor"]["fingerprint"] == shipped.fingerprint[:16]
    own = SceneClassifier(**TINY, descriptor="own").fit(folder.paths, folder.labels)
    assert not torch.equal(own.model_.reduction.basis, shipped.basis[:8])
    assert own.provenance_["descriptor"] == "own"
    with pytest.raises(MgcapError, match="allowed are universal, own"):
        SceneClassifier(**TINY, descriptor="mine").fit(folder.paths, folder.labels)


def test_all_models_share_the_rows_of_the_universal_descriptor(
    scenes: Path, shipped: UniversalDescriptor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the classes and whichever images were trained on: the network runs once for each image."""
    folder = open_folder(scenes)
    first = SceneClassifier(**TINY).fit(folder.paths, folder.labels)
    from mgcap.inference.engines.torch import TorchEngine

    monkeypatch.setattr(TorchEngine, "features", None)  # nothing is left to compute
    half = [i for i in range(len(folder)) if i % 2]
    some = folder.subset(half)
    SceneClassifier(**TINY).fit(some.paths, [label[0] for label in some.labels])
    assert SceneDescriptor(**TINY).fit(some.paths).transform(some.paths).shape == (len(half), 45)
    assert evaluate_model(first, folder, lambda i, error: None)["test_images"] == len(folder)


def test_who_cannot_use_it(shipped: UniversalDescriptor) -> None:
    config = MGCAPConfig(**{k: v for k, v in TINY.items() if k in MGCAPConfig.model_fields})
    assert shipped.suits(config) and not shipped.suits(config.replace(channels=11))
    assert not shipped.suits(config.replace(reduction="none", channels=None))
    assert not shipped.suits(config.replace(layer="conv4")) and not shipped.suits(config.replace(activated=False))
    model, _ = build_model(config, "random", Runtime(device="cpu"))
    assert universal.universal_for(model) is shipped
    other, _ = build_model(config, "random", Runtime(device="cpu", seed=1))
    assert universal.universal_for(other) is None


def test_a_descriptor_file(tmp_path: Path) -> None:
    found = _descriptor()
    write_descriptor(tmp_path / "x.descriptor", found)
    again = read_descriptor(tmp_path / "x.descriptor")
    assert again.card == found.card and again.fingerprint == found.fingerprint


def test_descriptors_are_the_models_own(scenes: Path) -> None:
    folder = open_folder(scenes)
    classifier = SceneClassifier(**TINY).fit(folder.paths, folder.labels)
    rows = classifier.transform(folder.paths[:3])
    from mgcap.data.images import read_image

    with torch.no_grad():
        expected = torch.cat([classifier.model_.descriptor(read_image(p)[None]) for p in folder.paths[:3]])
    assert np.allclose(rows, expected, atol=2e-3) and np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    descriptor = SceneDescriptor(**TINY).fit(folder.paths)
    assert descriptor.get_feature_names_out()[:2].tolist() == ["mgcap0", "mgcap1"]


def test_unfitted_and_misspelt() -> None:
    with pytest.raises(NotFittedError, match="not fitted"):
        SceneDescriptor(**TINY).transform(np.zeros((1, 64, 64, 3), np.uint8))
    with pytest.raises(NotFittedError):
        SceneClassifier(**TINY).predict(np.zeros((1, 64, 64, 3), np.uint8))
    with pytest.raises(TypeError, match=r"no parameter 'rotation' .did you mean 'rotations'"):
        SceneClassifier(rotation=4)
    with pytest.raises(TypeError, match="did you mean 'engine'"):
        SceneClassifier().set_params(engin="torch")


def test_pipelines_and_searches(scenes: Path) -> None:
    folder = open_folder(scenes)
    paths, labels = list(folder.paths), list(folder.labels)
    pipeline = make_pipeline(SceneDescriptor(**TINY), LogisticRegression(C=100))
    assert pipeline.fit(paths, labels).score(paths, labels) > 0.5
    scores = cross_val_score(SceneClassifier(**TINY, regularisation=1e-6), paths, labels, cv=2)
    assert scores.shape == (2,)
    search = GridSearchCV(SceneClassifier(**TINY), {"regularisation": [1e-3, 1e-7]}, cv=2).fit(paths, labels)
    assert search.best_params_["regularisation"] in (1e-3, 1e-7)
    twin = clone(search.best_estimator_)
    assert twin.get_params() == search.best_estimator_.get_params() and not hasattr(twin, "model_")


def test_the_network_sees_an_image_once(scenes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the axes do not depend on the images, whatever is asked of a model but exact probabilities."""
    seen, real = [], TorchEngine.features

    def counting(self: TorchEngine, views: torch.Tensor, granularity: int) -> torch.Tensor:
        seen.append(len(views))
        return real(self, views, granularity)

    monkeypatch.setattr(TorchEngine, "features", counting)

    def views(work: Callable[[], Any]) -> int:
        before = sum(seen)
        work()
        return sum(seen) - before

    folder, given = open_folder(scenes), {**TINY, "reduction": "learnt", "regularisation": 1e-3}
    paths, labels = list(folder.paths), list(folder.labels)
    model, every = SceneClassifier(**given), len(paths) * TINY["rotations"]
    assert views(lambda: model.fit(paths, labels)) == every
    assert views(lambda: model.score(paths, labels)) == views(lambda: model.predict(paths)) == 0
    assert views(lambda: model.predict_proba(paths)) == every
    assert (model.predict(paths) == model.classes_[model.predict_proba(paths).argmax(1)]).all()
    alone = SceneClassifier(**given, cache=False).fit(paths, labels)
    assert views(lambda: alone.score(paths, labels)) == every
    search = GridSearchCV(SceneClassifier(**given | {"seed": 1}), {"regularisation": [1e-3, 1e-7]}, cv=2)
    assert views(lambda: search.fit(paths, labels)) == every  # of all folds and both settings together


@pytest.mark.parametrize("engine", ["torch", "openvino-fp32", "openvino"])
def test_estimators_can_be_pickled_with_every_engine(scenes: Path, tmp_path: Path, engine: str) -> None:
    if engine != "torch":
        pytest.importorskip("nncf")
    folder = open_folder(scenes)
    given: dict[str, Any] = {**TINY, "engine": engine}
    model = SceneClassifier(**given, regularisation=1e-6).fit(folder.paths, folder.labels)
    expected = model.predict_proba(folder.paths[:3])
    joblib.dump(model, tmp_path / "model.joblib")
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), joblib.load(tmp_path / "model.joblib")):
        assert twin.engine_.name == model.engine_.name
        assert np.allclose(twin.predict_proba(folder.paths[:3]), expected, atol=1e-6)


@pytest.mark.parametrize("labels", [np.float32([0.1, 0.2, 0.3]), np.float16([0.1, 0.2, 0.3]), np.int8([3, 1, 2])])
def test_labels_of_any_precision_are_found_again(scenes: Path, tmp_path: Path, labels: np.ndarray) -> None:
    paths = open_folder(scenes).paths[:9]
    given = np.tile(labels, 3)
    model = SceneClassifier(**TINY, regularisation=1e-7).fit(paths, given)
    model.save(tmp_path / "m.mgcap")
    assert SceneClassifier.load(tmp_path / "m.mgcap").score(paths, given) == model.score(paths, given) > 0


def test_a_loaded_classifier_takes_parameters_like_a_new_one(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    SceneClassifier(**TINY, normalisation="log").fit(folder.paths, folder.labels).save(tmp_path / "m.mgcap")
    for changes in ({"normalisation": "bilinear"}, {"backbone": "resnet18"}, {"frame": "padded"}):
        loaded = SceneClassifier.load(tmp_path / "m.mgcap").set_params(**changes)
        fresh = SceneClassifier(**{**TINY, "normalisation": "log", **changes})
        assert loaded.configuration(4) == fresh.configuration(4)


@pytest.mark.parametrize(
    "labels", [[3, 1, 2], [0.5, 1.5, -2.0], [True, False, True], ["b", "a", "c"]], ids=["int", "float", "bool", "str"]
)
def test_labels_keep_their_type_in_a_file(scenes: Path, tmp_path: Path, labels: list[Any]) -> None:
    paths = open_folder(scenes).paths[:9]
    given = [labels[i % 3] for i in range(9)]
    model = SceneClassifier(**TINY, regularisation=1e-7).fit(paths, given)
    model.save(tmp_path / "m.mgcap")
    loaded = SceneClassifier.load(tmp_path / "m.mgcap")
    assert loaded.classes_.dtype.kind == model.classes_.dtype.kind
    assert loaded.score(paths, given) == model.score(paths, given) > 0
    fitted = {name for name in vars(model) if name.endswith("_")}
    assert fitted <= set(vars(loaded)) and loaded.file_ == tmp_path / "m.mgcap"
    assert loaded.set_params(regularisation=1e-3).fit(paths, given).regularisation_ == 1e-3


def test_no_global_random_numbers_are_reseeded(scenes: Path) -> None:
    folder = open_folder(scenes)
    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    first = torch.rand(1)
    SceneClassifier(**TINY).fit(folder.paths, folder.labels)
    assert torch.equal(torch.cat((first, torch.rand(1))), expected)


def test_the_models_forward_is_the_same_with_and_without_gradient(scenes: Path) -> None:
    folder = open_folder(scenes)
    model: MGCAP = SceneClassifier(**{**TINY, "engine": "openvino-fp32"}).fit(folder.paths, folder.labels).model_
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        without = model(images)
    assert torch.allclose(model(images), without, atol=1e-6)


@pytest.mark.parametrize("engine", ["torch", "openvino-fp32", "auto"])
def test_an_engine_is_opened_again_where_the_weights_changed(scenes: Path, engine: str) -> None:
    if engine != "torch":
        pytest.importorskip("nncf")
    folder = open_folder(scenes)
    said: list[str] = []

    class Told(Progress):
        def say(self, line: str) -> None:
            said.append(line)

    given = {**TINY, "engine": engine, "descriptor": "own", "regularisation": 1e-6, "progress": Told()}
    model = SceneClassifier(**given).fit(folder.paths, folder.labels)
    before, name = model.predict_proba(folder.paths[:2]), model.engine_.name
    other, _ = build_model(model.model_.config, "random", Runtime(device="cpu", seed=1))
    said.clear()
    model.model_.backbones.load_state_dict(other.backbones.state_dict())
    found = model.predict_proba(folder.paths[:2])
    assert model.engine_.name == name and not np.allclose(found, before, atol=1e-3)
    assert [line for line in said if "opened again" in line] == said[-1:]  # once
    with torch.no_grad():
        images = torch.stack([to_tensor(path) for path in folder.paths[:2]])
        expected = model.model_(images).double().softmax(1).numpy()
    assert np.allclose(found, expected, atol=0.1 if name == "openvino" else 1e-4)


@pytest.mark.parametrize("engine", ["torch", "openvino-fp32"])
def test_a_model_may_be_moved(scenes: Path, engine: str) -> None:
    if engine != "torch":
        pytest.importorskip("openvino")
    folder = open_folder(scenes)
    model = SceneClassifier(**{**TINY, "engine": engine}, regularisation=1e-6).fit(folder.paths, folder.labels)
    before, rows = model.predict_proba(folder.paths[:2]), model.transform(folder.paths[:2])
    model.model_.to(torch.float64)
    assert np.allclose(model.predict_proba(folder.paths[:2]), before, atol=1e-4)
    assert np.allclose(model.transform(folder.paths[:2]), rows, atol=2e-3)
    with pytest.raises(MgcapError, match="saved in float32"):
        model.save("none.mgcap")
    model.model_.to("meta")
    with pytest.raises(MgcapError, match="device 'meta', which holds no numbers"):
        model.predict(folder.paths[:2])
