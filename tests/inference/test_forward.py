from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mgcap import MGCAP, MGCAPConfig, SceneClassifier, pooling, spectral
from mgcap.data.folders import open_folder
from mgcap.data.images import read_image
from mgcap.data.stream import image_batches
from mgcap.inference.forward import answer, embed, see, walk
from mgcap.inference.pipeline import stream_features
from tests.conftest import TINY


def _keep_least(least: torch.Tensor | None, matrices: torch.Tensor) -> torch.Tensor:
    own = matrices.amin(-3)
    return own if least is None else torch.minimum(least, own)


def _by_hand(classifier: SceneClassifier, path: Path) -> np.ndarray:
    """Probabilities with the least entry over rotations, step by step in float64."""
    model = classifier.model_
    image = read_image(path)[None]
    with torch.no_grad():
        pooled = []
        for g in range(len(model.config.granularities)):
            features = model.features_at(image, g, model.config.angles)[0]
            pooled.append(embed(features, model.config, model.reduction).double().numpy().min(0))
    values, vectors = np.linalg.eigh(np.mean(pooled, 0))
    root = (vectors * np.sqrt(np.clip(values, 1e-5, 1e5))) @ vectors.T
    row, column = np.triu_indices(len(root))
    vector = root[row, column] * np.where(row == column, 1, np.sqrt(2))
    logits = model.head.weight.double().numpy() @ (vector / np.linalg.norm(vector)) + model.head.bias.double().numpy()
    shares = np.exp(logits - logits.max())
    return np.asarray(shares / shares.sum())


def test_a_new_pooling_rule_is_one_entry(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, picture: np.ndarray, write_raster
) -> None:
    """Registered in one place, it works in training, prediction, files, maps, explanations and export."""
    from mgcap.geo.mapping import map_raster
    from mgcap.geo.tiles import classify
    from mgcap.persistence.export import export_model, open_exported

    monkeypatch.setitem(pooling.RULES, "least", pooling.Rule(_keep_least))
    folder = open_folder(scenes)
    given = {**TINY, "rotations": 3, "granularities": (1.0, 0.8), "rotation_pooling": "least", "resolution": 0.5}
    classifier = SceneClassifier(**{**given, "cache": False}).fit(folder.paths, folder.labels)
    some = list(folder.paths[:3])
    expected = np.stack([_by_hand(classifier, path) for path in some])
    assert np.allclose(classifier.predict_proba(some), expected, atol=1e-4)
    plain = SceneClassifier(**{**given, "rotation_pooling": "max", "cache": False}).fit(folder.paths, folder.labels)
    assert np.abs(plain.predict_proba(some) - expected).max() > 1e-3  # it is another rule
    classifier.save(tmp_path / "least.mgcap")
    assert np.allclose(SceneClassifier.load(tmp_path / "least.mgcap").predict_proba(some), expected, atol=1e-4)
    assert np.allclose(classifier.explain(some[0]).probabilities, expected[0], atol=1e-4)
    tiles = classify(classifier.model_, classifier.engine_, image_batches(some, 2, lambda i, e: None))
    assert np.allclose([found for _, found, *_ in tiles], expected, atol=1e-4)
    done = map_raster(classifier, tmp_path / "least.mgcap", write_raster(picture), tmp_path / "map.gpkg")
    assert done is not None and (tmp_path / "map.gpkg").exists()
    export_model(classifier, "pt2", tmp_path / "least.pt2", 64)
    images = torch.stack([read_image(path) for path in some]).numpy()
    assert np.allclose(open_exported(tmp_path / "least.pt2")(images), expected, atol=1e-3)


def test_a_new_spectral_function_is_one_entry(scenes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(spectral.LAYERS, "third power", lambda matrix, config: matrix @ matrix @ matrix)
    folder = open_folder(scenes)
    classifier = SceneClassifier(**TINY, normalisation="third power", cache=False).fit(folder.paths, folder.labels)
    assert classifier.predict_proba(folder.paths[:2]).shape == (2, 4)
    with pytest.raises(ValueError, match="'fourth' is unknown; allowed are bilinear, log, sqrt, third power"):
        MGCAPConfig(normalisation="fourth")


def _near(votes: torch.Tensor, others: torch.Tensor) -> bool:
    """The corner of the Gaussian matrix is the same for all rotations, so that rounding decides who wins it."""
    return int((votes - others).abs().max()) <= 1


@pytest.mark.parametrize("kind", ["max", "mean"])
def test_all_roads_lead_to_the_same_numbers(kind: str) -> None:
    """In one go, in chunks, with and without a gradient, streamed: the same logits and winners."""
    torch.manual_seed(0)
    config = MGCAPConfig(backbone="alexnet", channels=6, size=64, rotations=4, rotation_pooling=kind, num_classes=3)
    model = MGCAP(config).eval()
    images = torch.rand(2, 3, 70, 70)
    with torch.no_grad():
        features = [model.features_at(images, g, config.angles) for g in range(2)]
    whole = answer(model, see(model, [[own] for own in features], winners=True))
    parts = answer(model, see(model, (own.split(3, 1) for own in features), winners=True))
    assert torch.allclose(whole.logits, parts.logits, atol=1e-5) and _near(whole.votes, parts.votes)
    assert torch.allclose(model(images), whole.logits, atol=1e-5)
    with torch.no_grad():
        assert torch.allclose(model(images), whole.logits, atol=1e-5)
        assert _near(model.canonical(images).votes, whole.votes)
        streamed = walk(model, stream_features(model, [([7, 9], images)]), winners=True)
        for row, (index, seen) in enumerate(streamed):
            found = answer(model, seen)
            assert index == (7, 9)[row] and _near(found.votes[0], whole.votes[row])
            assert torch.allclose(found.logits[0], whole.logits[row], atol=1e-5)
            assert torch.allclose(found.descriptors, model.descriptor(images[row : row + 1]), atol=1e-6)
