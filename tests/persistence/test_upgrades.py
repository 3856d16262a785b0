"""Model files of every version that was ever written, as that version wrote them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mgcap import SceneClassifier
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.persistence.bundle import FORMAT_VERSION
from mgcap.persistence.upgrades import UPGRADES, upgraded

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_every_version_is_read_and_says_what_it_said(version: int) -> None:
    classifier = SceneClassifier.load(GOLDEN / f"version-{version}.mgcap", engine="torch")
    expected = json.loads((GOLDEN / f"version-{version}.json").read_text())
    assert list(classifier.classes_) == expected["classes"]
    scenes = [draw_scene(CLASSES[i], 1, i, 64) for i in range(3)]
    found = classifier.predict_readable(scenes, on_error=None, keep=False)
    assert np.allclose(found.probabilities, expected["probabilities"], rtol=0, atol=1e-6)
    if "distances" in expected:
        assert found.distances is not None
        assert np.allclose(found.distances, expected["distances"], rtol=0, atol=1e-6)
        assert np.allclose(classifier.limits(0.1), expected["limits"], rtol=0, atol=1e-6)
    else:  # earlier versions had no sample: what is unknown is said by probability alone
        assert classifier.sample_ is None and found.distances is None and np.isinf(classifier.limits(0.1).distance)
    assert ("examples" in expected) == (classifier.examples_ is not None)
    if classifier.examples_ is not None:
        assert classifier.examples_.places.tolist() == expected["examples"]
        assert classifier.examples_.targets.tolist() == [0, 1, 2, 0, 1, 2]
    assert classifier.imagery_.resolution == 0.5
    given = classifier.get_params()  # what files of old do not say is as for a new estimator
    plain = {"regularisation": "auto", "class_weight": None, "finetune": None, "seed": 0}
    assert {name: given[name] for name in plain} == plain and given["descriptor"] == "own"


def test_there_is_a_way_from_every_version() -> None:
    assert set(UPGRADES) == set(range(1, FORMAT_VERSION))
    assert upgraded({"format_version": 1})["format_version"] == FORMAT_VERSION
