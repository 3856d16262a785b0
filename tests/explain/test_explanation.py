from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mgcap import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.errors import DataError
from mgcap.explain.explanation import explain_image
from tests.conftest import TINY


@pytest.fixture(scope="module")
def classifier(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> SceneClassifier:
    folder = open_folder(scenes)
    options = {**TINY, "rotations": 4, "granularities": (1.0, 0.8)}
    return SceneClassifier(**options, cache=False).fit(folder.paths, folder.labels)


def _image() -> np.ndarray:  # type: ignore[type-arg]
    return draw_scene(CLASSES[2], 3, 7, 96)


def test_the_pieces_fit_together(classifier: SceneClassifier) -> None:
    found = explain_image(classifier, _image())
    probabilities = classifier.predict_proba([_image()])[0]
    assert found.probabilities == pytest.approx(probabilities, abs=1e-5)
    assert found.target == found.classes[int(probabilities.argmax())] == found.top()[0][0]
    canonical = classifier.model_.canonical(_tensor())
    assert found.angles.tolist() == canonical.angles[0].tolist()
    assert found.votes == pytest.approx(canonical.votes[0].numpy() / canonical.votes[0].sum(-1).numpy()[:, None])
    for maps in (*found.view_heat.values(), *found.granularity_heat.values(), *found.heat.values()):
        assert np.isfinite(maps).all() and maps.min() >= 0 and maps.max() <= 1
    assert found.heat["gradcam"].shape == (96, 96) and found.views.shape == (2, 64, 64, 3)
    assert len(found.figure().axes) == 4 + 2 * 4


def _tensor() -> object:
    import torch

    return torch.from_numpy(_image()).permute(2, 0, 1)[None].float() / 255


def test_a_rotated_image_rotates_its_explanation(classifier: SceneClassifier) -> None:
    plain = explain_image(classifier, _image())
    rotated = explain_image(classifier, np.rot90(_image()).copy())
    assert rotated.angles.tolist() == ((plain.angles + 90) % 360).tolist()
    np.testing.assert_allclose(rotated.views, plain.views, atol=1e-5)
    for method, heat in plain.heat.items():
        np.testing.assert_allclose(rotated.heat[method], np.rot90(heat), atol=2e-3)


def test_a_contrast_is_the_difference_of_two_logits(classifier: SceneClassifier) -> None:
    first, second = classifier.classes_[:2]
    one = explain_image(classifier, _image(), target=str(first), contrast=str(second))
    other = explain_image(classifier, _image(), target=str(second), contrast=str(first))
    assert one.target == first and one.contrast == second
    assert not np.allclose(one.heat["local"], other.heat["local"])
    best = explain_image(classifier, _image())
    against = explain_image(classifier, _image(), contrast=best.target)
    assert against.target == best.top(2)[1][0]


def test_classes_that_are_not_there(classifier: SceneClassifier) -> None:
    with pytest.raises(DataError, match="does not know the class 'moon'"):
        explain_image(classifier, _image(), target="moon")
    name = str(classifier.classes_[0])
    with pytest.raises(DataError, match="with itself"):
        explain_image(classifier, _image(), target=name, contrast=name)


def test_a_large_image_is_explained_in_a_smaller_frame(
    classifier: SceneClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mgcap.explain.explanation.LARGEST", 40)
    found = classifier.explain(np.random.default_rng(0).random((80, 60, 3), dtype=np.float32))
    assert found.image.shape == (40, 30, 3)
    assert all(heat.shape == (40, 30) for heat in found.heat.values())
