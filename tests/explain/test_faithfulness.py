from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from mgcap import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.explain.faithfulness import STEPS, altered, area, blurred, measure, randomised_weights, rank_correlation
from tests.conftest import TINY


def test_the_hottest_pixels_go_first() -> None:
    image, other = torch.ones(3, 160, 160), torch.zeros(3, 160, 160)
    heat = np.zeros((160, 160))
    heat[32:48] = 1  # a tenth of the image: one step
    versions = altered(image, heat, other)
    assert len(versions) == STEPS + 1 and torch.equal(versions[0], image) and torch.equal(versions[-1], other)
    assert not versions[1][:, 32:48].any() and versions[1][:, :32].all() and versions[1][:, 48:].all()
    shares = [float(v.mean()) for v in versions]
    assert shares == pytest.approx(np.linspace(1, 0, STEPS + 1), abs=1e-3)


def test_area_and_blur() -> None:
    assert area(np.array([1.0, 1.0, 1.0])) == 1 and area(np.array([0.0, 0.5, 1.0])) == 0.5
    image = torch.rand(3, 40, 50)
    soft = blurred(image)
    assert soft.shape == image.shape and float(soft.std()) < 0.3 * float(image.std())
    torch.testing.assert_close(blurred(torch.full((3, 30, 30), 0.4)), torch.full((3, 30, 30), 0.4))
    assert rank_correlation(np.arange(9.0), np.arange(9.0) ** 3) == pytest.approx(1)


def test_a_row_for_each_image_and_map(scenes: Path) -> None:
    folder = open_folder(scenes)
    model = SceneClassifier(**TINY, cache=False).fit(folder.paths, folder.labels)
    rows, curves = measure(model, folder.paths[:2])
    assert {row["map"] for row in rows} == set(curves) == {"gradcam", "gradcam++", "local", "random", "centre"}
    first = float(model.predict_proba(folder.paths[:2]).max(1).mean())
    for own in curves.values():
        assert own["deletion"][0] == pytest.approx(first, abs=1e-5)  # nothing is gone yet
        assert own["insertion"][-1] == pytest.approx(first, abs=1e-5)  # all is back
    sanity = randomised_weights(model, folder.paths[:2])
    assert all(-1 <= value <= 1 for value in sanity.values())


def test_a_map_that_is_the_same_everywhere_resembles_nothing() -> None:
    assert rank_correlation(np.zeros((4, 4)), np.arange(16.0).reshape(4, 4)) == 0
