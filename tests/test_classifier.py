from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import StratifiedKFold

import mgcap
from mgcap import SceneClassifier, SceneDescriptor
from mgcap.backbones.pretrained import state_hash
from mgcap.data.folders import SceneFolder, open_folder
from mgcap.errors import DataError, ImageError, MgcapError, ValuesError, WeightsError
from mgcap.inference.engines.torch import TorchEngine
from mgcap.inference.sample import Sketch
from tests.backbones.fakes import publish
from tests.conftest import TINY


@pytest.fixture(scope="module")
def folder(scenes: Path) -> SceneFolder:
    return open_folder(scenes)


@pytest.fixture(scope="module")
def fitted(folder: SceneFolder) -> SceneClassifier:
    return SceneClassifier(**TINY).fit(folder.paths, folder.labels)


def test_the_scikit_learn_api(fitted: SceneClassifier, folder: SceneFolder) -> None:
    assert fitted.classes_.tolist() == list(folder.classes)
    proba = fitted.predict_proba(folder.paths)
    assert proba.shape == (24, 4) and np.allclose(proba.sum(1), 1)
    assert (fitted.predict(folder.paths) == fitted.classes_[proba.argmax(1)]).all()
    assert fitted.score(folder.paths, folder.labels) == np.mean(fitted.predict(folder.paths) == folder.labels)
    twin = clone(fitted)
    assert twin.get_params() == fitted.get_params() and not hasattr(twin, "model_")
    assert twin.set_params(rotations=3, seed=5).get_params()["rotations"] == 3


def test_deterministic(fitted: SceneClassifier, folder: SceneFolder) -> None:
    again = SceneClassifier(**TINY).fit(folder.paths, folder.labels)
    assert np.array_equal(again.predict_proba(folder.paths[:3]), fitted.predict_proba(folder.paths[:3]))


def test_learns_what_can_be_learnt() -> None:
    """Stripes along x against stripes along y at one rotation: even random filters tell them apart."""
    rng = np.random.default_rng(0)
    images, labels = [], []
    for i in range(24):
        wave = np.sin(np.arange(64) * rng.uniform(0.5, 0.9))[None, :, None] * 0.4 + 0.5
        picture = np.broadcast_to(wave, (64, 64, 3)) + rng.normal(0, 0.03, (64, 64, 3))
        images.append((picture.transpose(1, 0, 2) if i % 2 else picture).clip(0, 1).astype(np.float32))
        labels.append("down" if i % 2 else "across")
    model = SceneClassifier(**{**TINY, "rotations": 1}).fit(images[:16], labels[:16])
    assert model.score(images[16:], labels[16:]) == 1.0
    # with four rotations the two are one and the same, as they should be
    turned = SceneClassifier(**{**TINY, "rotations": 4}).fit(images[:16], labels[:16])
    a, b = turned.predict_proba([images[0]]), turned.predict_proba([np.rot90(images[0]).copy()])
    assert np.allclose(a, b, atol=0.02)


@pytest.mark.parametrize(
    "values", [{}, {"share_granularities": False, "granularities": (1.0, 0.8)}, {"reduction": "none"}]
)
def test_save_and_load(folder: SceneFolder, tmp_path: Path, values: dict) -> None:
    model = SceneClassifier(**{**TINY, **({} if values.get("reduction") != "none" else {"channels": None}), **values})
    model.fit(folder.paths, folder.labels)
    model.save(tmp_path / "m.mgcap")
    again = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    assert np.array_equal(again.predict_proba(folder.paths), model.predict_proba(folder.paths))
    assert again.classes_.tolist() == model.classes_.tolist()
    assert again.model_.config == model.model_.config
    assert again.provenance_["images"] == 24 and "created" in again.provenance_


def test_a_stock_backbone_is_stored_by_name(
    folder: SceneFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mgcap import backbones
    from mgcap.backbones import pretrained as weights

    torch.manual_seed(3)
    state = backbones.build_backbone("alexnet").state_dict()
    publish(monkeypatch, "alexnet", weights.state_hash(state))
    path = weights.cached_path("alexnet")
    path.parent.mkdir(parents=True)
    weights.save_file(state, path)
    model = SceneClassifier(**{**TINY, "weights": "imagenet"}).fit(folder.paths, folder.labels)
    model.save(tmp_path / "m.mgcap")
    assert (tmp_path / "m.mgcap").stat().st_size < 50_000
    cut = SceneClassifier(**{**TINY, "weights": "imagenet", "layer": "conv3"}).fit(folder.paths, folder.labels)
    cut.save(tmp_path / "cut.mgcap")  # a part of the published network is stock, too
    assert (tmp_path / "cut.mgcap").stat().st_size < 50_000
    assert mgcap.load(tmp_path / "cut.mgcap", engine="torch").backbone_["stock"]
    with torch.no_grad():
        next(iter(cut.model_.backbones.parameters())).mul_(2)
    cut.save(tmp_path / "changed.mgcap")
    assert (tmp_path / "changed.mgcap").stat().st_size > 500_000
    again = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    assert np.array_equal(again.predict_proba(folder.paths[:2]), model.predict_proba(folder.paths[:2]))
    # the same file with other weights at hand is refused
    other = {name: tensor + 1 for name, tensor in state.items()}
    publish(monkeypatch, "alexnet", weights.state_hash(other))
    weights.save_file(other, path)
    with pytest.raises(mgcap.BundleError, match="other alexnet weights"):
        mgcap.load(tmp_path / "m.mgcap", engine="torch")
    # weights from a file are stored whole, and the file is not needed any more
    weights.save_file(other, tmp_path / "own.safetensors")
    publish(monkeypatch, "alexnet", "0" * 64)
    own = SceneClassifier(**{**TINY, "weights": tmp_path / "own.safetensors"}).fit(folder.paths, folder.labels)
    own.save(tmp_path / "own.mgcap")
    (tmp_path / "own.safetensors").unlink()
    path.unlink()
    assert np.array_equal(
        mgcap.load(tmp_path / "own.mgcap", engine="torch").predict_proba(folder.paths[:2]),
        own.predict_proba(folder.paths[:2]),
    )


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"rotations": 0}, "rotations"),
        ({"preset": "compct"}, "preset"),
        ({"finetune": {"epochs": -1}}, r"^finetune: epochs: Input should be .* .given: -1.$"),
        ({"finetune": {"epoch": 1}}, r"^finetune: 'epoch' is not an option .did you mean 'epochs'"),
        ({"finetune": {"patience": 3}}, "^finetune: patience: needs a validation part"),
        ({"finetune": "yes"}, "^finetune: Input should be a valid dictionary"),
        ({"resolution": -1.0}, r"^resolution: Input should be greater than 0 .given: -1.0.$"),
        ({"resolution": "far"}, "^resolution: Input should be a valid number"),
        ({"regularisation": -1e-3}, "regularisation: must be 'auto' or a positive number, not -0.001"),
        ({"regularisation": "atuo"}, "regularisation: must be 'auto'"),
        ({"descriptor": "mine"}, "descriptor: 'mine' is unknown; allowed are universal, own"),
        ({"progress": "yes"}, "progress: must be True, False"),
        ({"seed": "one"}, "seed: must be a whole number"),
        ({"composed": -1}, "composed: must be a whole number from 0 to 100,000, not -1"),
        ({"composed": 100_001}, "composed: must be a whole number from 0 to 100,000"),
        ({"composed": 0.5}, "composed: must be a whole number"),
    ],
)
def test_bad_values_are_refused_before_any_image_is_read(values: dict, sentence: str) -> None:
    estimators = [SceneClassifier(**values)]  # the constructor keeps values, as scikit-learn asks for it
    if not {"finetune", "resolution", "regularisation", "composed"} & set(values):
        estimators.append(SceneDescriptor(**values))
    for estimator in estimators:
        with pytest.raises(MgcapError, match=sentence) as caught:
            estimator.fit(["none.png"], ["a"])
        assert len(str(caught.value).splitlines()) == 1
        if {"finetune", "resolution"} & set(values):
            assert isinstance(caught.value, ValuesError)


def test_unknown_names_are_refused_at_once() -> None:
    with pytest.raises(TypeError, match="no parameter 'no_such_value'"):
        SceneClassifier(no_such_value=1)


def test_bad_data(folder: SceneFolder, tmp_path: Path) -> None:
    model = SceneClassifier(**TINY)
    with pytest.raises(MgcapError, match="not fitted"):
        model.predict(folder.paths)
    for images, labels, sentence in (
        (folder.paths[:3], ["a", "b"], "3 images but 2 labels"),
        (folder.paths[:2], ["a", "a"], "only the class 'a'"),
        ([], [], "no images"),
    ):
        with pytest.raises(DataError, match=sentence):
            model.fit(images, labels)
    broken = tmp_path / "broken.jpg"
    broken.write_text("no")
    with pytest.raises(DataError, match="no image of class 'b' could be read"):
        model.fit([folder.paths[0], folder.paths[1], broken], ["a", "a", "b"])
    model.fit([folder.paths[0], folder.paths[1], broken, folder.paths[9]], ["a", "a", "a", "b"])
    assert [index for index, _ in model.skipped_] == [2]
    with pytest.raises(ImageError, match=r"broken\.jpg"):
        model.predict([folder.paths[0], broken])
    with pytest.raises(MgcapError, match="device 'nonsense'"):
        SceneClassifier(**TINY, device="nonsense").fit(folder.paths, folder.labels)
    with pytest.raises(WeightsError, match="no weights file"):
        SceneClassifier(**{**TINY, "weights": tmp_path / "none.pth"}).fit(folder.paths, folder.labels)


def test_a_class_with_one_image(folder: SceneFolder) -> None:
    model = SceneClassifier(**TINY).fit([folder.paths[0], folder.paths[8], folder.paths[9]], ["a", "b", "b"])
    assert model.predict([folder.paths[0]]).tolist() == ["a"]


def test_the_threshold_rejects_about_the_share_that_was_asked_for(scenes: Path) -> None:
    folder = open_folder(scenes)
    model = SceneClassifier(**TINY).fit(folder.paths, folder.labels)
    thresholds = [model.reject_threshold(rate) for rate in (0.01, 0.05, 0.5)]
    assert thresholds == sorted(thresholds) and 0 < thresholds[0] <= 1
    for rate in (0, 1, -0.1):
        with pytest.raises(MgcapError, match="between 0 and 1"):
            model.reject_threshold(rate)
    fixed = SceneClassifier(**{**TINY, "regularisation": 1e-6}).fit(folder.paths, folder.labels)
    with pytest.raises(MgcapError, match="held-out confidence"):
        fixed.reject_threshold(0.05)


def test_weights_count_as_repeated_images(folder: SceneFolder) -> None:
    """Also where an image has weight zero: it might as well be no image at all."""
    times = [(i * 7) % 4 for i in range(len(folder))]
    given = {**TINY, "reduction": "learnt", "regularisation": 1e-4}
    files: list = list(folder.paths)
    files[times.index(0)] = "none.png"
    weighted = SceneClassifier(**given).fit(files, folder.labels, sample_weight=times)
    order = np.repeat(np.arange(len(folder)), times)
    repeated = SceneClassifier(**given).fit([folder.paths[i] for i in order], [folder.labels[i] for i in order])
    expected = repeated.predict_proba(folder.paths)
    assert np.allclose(weighted.predict_proba(folder.paths), expected, atol=2e-3)
    plain = SceneClassifier(**given).fit(folder.paths, folder.labels)
    assert not np.allclose(plain.predict_proba(folder.paths), expected, atol=2e-2)
    assert weighted.skipped_ == [] and weighted.provenance_["weighted"]


def test_class_weights_and_set_params_of_a_loaded_model(folder: SceneFolder, tmp_path: Path) -> None:
    labels = ["a" if i % 6 == 0 else "b" for i in range(len(folder))]
    given = {**TINY, "regularisation": 1e-2}
    SceneClassifier(**given).fit(folder.paths, labels).save(tmp_path / "m.mgcap")
    model = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    before = model.predict_proba(folder.paths)[:, 0].mean()
    model.set_params(class_weight="balanced", regularisation=1e-2, weights="random").fit(folder.paths, labels)
    assert model.predict_proba(folder.paths)[:, 0].mean() > before + 0.2
    assert clone(model).get_params()["class_weight"] == "balanced"


@pytest.mark.parametrize(
    "given",
    [
        {"regularisation": 1e-2, "class_weight": {0.5: 3.0}, "seed": 3, "descriptor": "own", "resolution": 0.5},
        {"class_weight": "balanced"},
        {"finetune": {"epochs": 1, "batch": 6, "head_epochs": 2}, "seed": 1},
    ],
    ids=["exact", "balanced", "fine-tuned"],
)
def test_a_loaded_model_has_the_parameters_it_was_trained_with(
    folder: SceneFolder, tmp_path: Path, given: dict
) -> None:
    labels = np.array([0.5 if i % 6 == 0 else 2 for i in range(len(folder))], np.float32)
    model = SceneClassifier(**{**TINY, **given}).fit(folder.paths, labels)
    model.save(tmp_path / "m.mgcap")
    loaded = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    before, after = model.get_params(), loaded.get_params()
    assert before.pop("granularities") == after.pop("granularities")[0]
    finetune = before.pop("finetune")
    assert {**after, "finetune": finetune} == {**before, "finetune": finetune}
    if finetune is None:
        assert after["finetune"] is None
    else:
        assert finetune.items() <= after["finetune"].items()
    again = clone(loaded).fit(folder.paths, labels)
    assert np.array_equal(again.predict_proba(folder.paths), model.predict_proba(folder.paths))


def test_of_a_weights_file_a_model_knows_the_name(folder: SceneFolder, tmp_path: Path) -> None:
    state = SceneClassifier(**TINY).fit(folder.paths, folder.labels).model_.backbones[0].state_dict()
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, tmp_path / "own.safetensors")
    model = SceneClassifier(**{**TINY, "weights": tmp_path / "own.safetensors"}).fit(folder.paths, folder.labels)
    model.save(tmp_path / "m.mgcap")
    assert str(tmp_path).encode() not in (tmp_path / "m.mgcap").read_bytes()
    loaded = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    assert loaded.get_params()["weights"] == "own.safetensors"
    with pytest.raises(WeightsError, match=r"no weights file own\.safetensors"):  # not in this folder
        clone(loaded).fit(folder.paths, folder.labels)


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [
        ([3, 200], "uint8"), ([-3, 100], "int8"), ([-7, 70_000], "int32"), ([5, 2**64 - 1], "uint64"),
        ([1, 2], "int64"), ([0.1, 1e30], "float32"), ([0.1, 0.25], "float16"), ([0.1, 1e300], "float64"),
        ([True, False], "bool"), (["a", "bb"], "<U2"),
    ],
)  # fmt: skip
def test_labels_come_back_with_their_type(folder: SceneFolder, tmp_path: Path, labels: list, dtype: str) -> None:
    given = np.array(labels * (len(folder) // 2), dtype)
    model = SceneClassifier(**TINY, regularisation=1e-2).fit(folder.paths, given)
    model.save(tmp_path / "m.mgcap")
    found = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    assert found.classes_.dtype == given.dtype and np.array_equal(found.classes_, np.unique(given))
    assert found.predict(folder.paths[:1]).dtype == given.dtype


def test_weights_are_not_for_fine_tuning(folder: SceneFolder) -> None:
    model = SceneClassifier(**TINY, finetune={"epochs": 1})
    with pytest.raises(ValueError, match="sample_weight is for the exact head alone; with finetune, give"):
        model.fit(folder.paths, folder.labels, sample_weight=np.ones(len(folder)))
    with pytest.raises(ValueError, match="class_weight is for the exact head alone"):
        model.set_params(class_weight="balanced").fit(folder.paths, folder.labels)


def test_a_classifier_around_a_torch_module(tmp_path: Path) -> None:
    values = {k: v for k, v in TINY.items() if k not in ("weights", "engine")}
    torch.manual_seed(0)
    module = mgcap.MGCAP(mgcap.MGCAPConfig(**values, reduction="learnt", num_classes=3))
    images = np.random.default_rng(0).random((4, 64, 64, 3), dtype=np.float32)
    with torch.no_grad():
        logits = module.eval()(torch.from_numpy(images).permute(0, 3, 1, 2))
    model = SceneClassifier.from_model(module, [30, 10, 20], engine="torch", resolution=0.5, side=64)
    assert all(parameter.requires_grad for parameter in module.parameters())  # it was copied
    assert np.allclose(model.predict_proba(images), logits.softmax(1), atol=1e-4)
    assert model.predict(images).tolist() == np.array([30, 10, 20])[logits.argmax(1)].tolist()
    model.save(tmp_path / "m.mgcap")
    again = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    assert np.array_equal(again.predict_proba(images), model.predict_proba(images)) and again.resolution == 0.5
    for wrong in ([1, 2], [1, 1, 2]):
        with pytest.raises(ValueError, match="3 different labels, one for each logit"):
            SceneClassifier.from_model(module, wrong)
    with pytest.raises(ValuesError, match=r"^resolution: Input should be greater than 0"):
        SceneClassifier.from_model(module, [30, 10, 20], engine="torch", resolution=-1)
    with pytest.raises(MgcapError, match="PCA of this model is not fitted"):
        SceneClassifier.from_model(mgcap.MGCAP(mgcap.MGCAPConfig(**values, num_classes=3)), list("abc"))


def test_weights_that_were_loaded_since_are_saved(
    folder: SceneFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stock backbone is stored by name, but not one that is stock no more."""
    model = SceneClassifier(**TINY, cache=False).fit(folder.paths, folder.labels)
    publish(monkeypatch, "alexnet", state_hash(model.model_.backbones[0].state_dict()))
    stock = SceneClassifier.from_model(model.model_, model.classes_, engine="torch")
    assert stock.backbone_["stock"]
    with torch.no_grad():
        next(stock.model_.backbones.parameters()).mul_(1.5)
    stock.save(tmp_path / "m.mgcap")
    again = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    assert not again.backbone_["stock"]
    assert np.allclose(again.predict_proba(folder.paths[:3]), stock.predict_proba(folder.paths[:3]), atol=1e-6)


def test_readable_images_are_looked_at_once(
    fitted: SceneClassifier, folder: SceneFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted.save(tmp_path / "m.mgcap")

    def classify(**options: bool) -> np.ndarray:
        model = mgcap.load(tmp_path / "m.mgcap", engine="torch", **options)
        kept, found, _ = model.predict_readable(folder.paths, lambda i, error: None)
        assert kept == list(range(24))
        return found

    exact, first = fitted.predict_proba(folder.paths), classify()
    assert np.allclose(first, exact, atol=1e-3)
    assert np.array_equal(classify(cache=False), exact)
    monkeypatch.setattr(TorchEngine, "features", lambda *views: pytest.fail("the network looked"))
    assert np.array_equal(classify(), first)


def _numbers(model: SceneClassifier, files: list[Path]) -> np.ndarray:
    """How far images are from the sample, by the definition."""
    assert model.sample_ is not None
    kept, mean = (own.double().numpy() for own in (model.sample_.vectors, model.sample_.mean))
    rows = Sketch(model.model_.head.in_features)(torch.from_numpy(model.transform(files))).double().numpy() - mean
    return np.array([1 - max(a @ b / np.sqrt((a @ a) * (b @ b)) for b in kept) for a in rows])


def test_what_is_unknown(fitted: SceneClassifier, folder: SceneFolder, tmp_path: Path) -> None:
    files, probabilities = folder.paths, fitted.predict_proba(folder.paths)
    distances = _numbers(fitted, files)
    fitted.save(tmp_path / "m.mgcap")
    again = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    shares = []
    for alpha in (0.01, 0.3, 0.7, 0.95):
        limits = fitted.limits(alpha)
        expected = (distances > limits.distance) | (probabilities.max(1) < limits.confidence)
        assert fitted.is_unknown(files, alpha).tolist() == expected.tolist()
        assert again.limits(alpha) == pytest.approx(limits) and (again.is_unknown(files, alpha) == expected).all()
        shares.append(expected.mean())
    assert shares == sorted(shares) and shares[0] < 0.1 < shares[-1]
    assert not fitted.is_unknown(files, 0).any() and fitted.limits(0) == (np.inf, 0)
    for alpha in (1, -0.1, 2):
        with pytest.raises(MgcapError, match="`unknown` takes 0"):
            fitted.limits(alpha)
    with pytest.raises(NotFittedError):
        SceneClassifier(**TINY).limits(0.01)


def test_limits_are_what_held_out_images_exceeded(folder: SceneFolder) -> None:
    """Each fifth by a model of the other four, sampled from these alone."""
    labels = np.array(folder.labels)
    model = SceneClassifier(**TINY).fit(folder.paths, labels)
    rows = Sketch(model.model_.head.in_features)(torch.from_numpy(model.transform(folder.paths))).double().numpy()
    rows -= rows.mean(0)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    apart = np.zeros(24)
    for train, test in StratifiedKFold(5, shuffle=True, random_state=0).split(rows, labels):
        apart[test] = 1 - (rows[test] @ rows[train].T).max(1)
    for alpha in (0.1, 0.25, 0.5):
        assert model.limits(alpha).distance == pytest.approx(np.quantile(apart, 1 - alpha), abs=1e-4)
        assert model.limits(alpha).confidence == pytest.approx(model.reject_threshold(alpha))


def test_a_model_says_what_it_knows_of_the_unknown(fitted: SceneClassifier, folder: SceneFolder) -> None:
    fixed = SceneClassifier(**{**TINY, "regularisation": 1e-6}).fit(folder.paths, folder.labels)
    assert fixed.limits(0.1).confidence == 0 < fixed.limits(0.1).distance < np.inf  # no head was held out
    bare = SceneClassifier.from_model(fitted.model_, fitted.classes_, engine="torch")
    assert bare.sample_ is None and not bare.is_unknown(folder.paths[:1], 0).any()
    with pytest.raises(MgcapError, match="knows no held-out confidence"):
        bare.limits(0.01)


def test_a_class_called_unknown_is_not_what_is_not_known(fitted: SceneClassifier, folder: SceneFolder) -> None:
    model = copy.copy(fitted)
    model.classes_ = np.array(["Unknown", *fitted.classes_[1:]])
    with pytest.raises(MgcapError, match="a class of the model is called 'unknown'"):
        model.limits(0.01)
    assert model.limits(0) == (np.inf, 0)
    assert (model.is_unknown(folder.paths, 0.7) == fitted.is_unknown(folder.paths, 0.7)).all()  # no names are said


def test_composed_scenes_are_not_for_fine_tuning(folder: SceneFolder) -> None:
    with pytest.raises(MgcapError, match="composed: is for the exact head alone"):
        SceneClassifier(**TINY, composed=200, finetune={"epochs": 1}).fit(folder.paths, folder.labels)


def test_heads_learn_from_composed_scenes_too(fitted: SceneClassifier, folder: SceneFolder, tmp_path: Path) -> None:
    model = SceneClassifier(**TINY, composed=300).fit(folder.paths, folder.labels)
    assert model.sample_ is not None and fitted.sample_ is not None
    windows = 5 * 14**2  # whole scenes, as many of each fold
    assert len(model.sample_.vectors) == 24 + windows and len(fitted.sample_.vectors) == 24
    assert model.sample_.targets[:24].tolist() == [list(folder.classes).index(label) for label in folder.labels]
    pictures = model.sample_.pictures()
    assert pictures is not None and len(pictures) == 24
    with Image.open(folder.paths[7]) as image:
        assert np.abs(pictures[7].astype(float) - np.asarray(image.convert("RGB").resize((64, 64)))).mean() < 20
    assert model.metrics_["temperature"] > 0 and "temperature" not in fitted.metrics_
    again = SceneClassifier(**TINY, composed=300).fit(folder.paths, folder.labels)
    assert np.array_equal(again.predict_proba(folder.paths), model.predict_proba(folder.paths))
    assert not np.allclose(model.predict_proba(folder.paths), fitted.predict_proba(folder.paths), atol=1e-3)
    model.save(tmp_path / "m.mgcap")
    loaded = mgcap.load(tmp_path / "m.mgcap", engine="torch")
    assert loaded.get_params()["composed"] == 300
    assert all(torch.equal(own, model.sample_.tensors()[name]) for name, own in loaded.sample_.tensors().items())
    assert np.array_equal(loaded.predict_proba(folder.paths), model.predict_proba(folder.paths))
