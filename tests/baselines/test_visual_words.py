from __future__ import annotations

import numpy as np
import pytest
import torch

from mgcap.baselines.method import Tools
from mgcap.baselines.visual_words import (
    CELL_WEIGHTS,
    DenseSift,
    VisualWords,
    histogram,
    learn_words,
    locality_constrained,
    nearest_words,
    pyramid,
)

RNG = np.random.default_rng(0)
LOCAL = torch.from_numpy(RNG.random((2, 64, 7))).float()
WORDS = torch.from_numpy(RNG.random((11, 7))).float()


def _nearest(local: torch.Tensor, count: int) -> np.ndarray:
    distance = np.linalg.norm(local.numpy()[:, None] - WORDS.numpy()[None], axis=-1)
    return np.argsort(distance, axis=1)[:, :count]


def test_words_are_counted_where_they_are_nearest() -> None:
    found = histogram(LOCAL, WORDS)
    for row, local in zip(found, LOCAL, strict=True):
        np.testing.assert_allclose(row, np.bincount(_nearest(local, 1)[:, 0], minlength=11) / 64, atol=1e-6)
    assert nearest_words(LOCAL, WORDS, 3).tolist() == [_nearest(local, 3).tolist() for local in LOCAL]


def test_a_pyramid_is_made_of_the_histograms_of_its_cells() -> None:
    found = pyramid(LOCAL, WORDS)
    assert found.shape == (2, 21 * 11)
    np.testing.assert_allclose(found[:, :11], CELL_WEIGHTS[0] * histogram(LOCAL, WORDS), atol=1e-6)
    grid = LOCAL.view(2, 8, 8, 7)
    corner = grid[:, :4, 4:].reshape(2, 16, 7)  # the second of the four cells
    expected = CELL_WEIGHTS[1] * histogram(corner, WORDS) * 16 / 64
    np.testing.assert_allclose(found[:, 11 * 2 : 11 * 3], expected, atol=1e-6)


def test_llc_solves_its_least_squares() -> None:
    """Each descriptor is the best affine combination of its nearest words, by Lagrange multipliers in numpy."""
    one = LOCAL[:1, :1]
    found = locality_constrained(one, WORDS)[0].numpy()
    near = _nearest(one[0], 5)[0]
    around = (WORDS[near] - one[0, 0]).double().numpy()
    gram = around @ around.T
    gram += 1e-4 * np.trace(gram) * np.eye(5)
    system = np.block([[2 * gram, np.ones((5, 1))], [np.ones((1, 5)), np.zeros((1, 1))]])
    weights = np.linalg.solve(system, np.array([0, 0, 0, 0, 0, 1.0]))[:5]
    expected = np.zeros(11)
    expected[near] = np.maximum(weights, 0)  # the largest weight, or none
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_kmeans_finds_the_groups() -> None:
    centres = RNG.normal(size=(4, 5)) * 20
    sample = torch.from_numpy(np.concatenate([c + RNG.normal(size=(50, 5)) for c in centres])).float()
    words = learn_words(sample, 4, 0).numpy()
    assert np.linalg.norm(words[:, None] - centres[None], axis=-1).min(0).max() < 1
    assert len(learn_words(sample[:3], 10, 0)) == 3


def test_sift_is_dense_upright_and_of_unit_length() -> None:
    pytest.importorskip("cv2")
    image = torch.full((1, 3, 256, 256), 0.2)
    image[..., :, 128:] = 0.8  # one vertical edge
    rows = DenseSift().rows(image).view(31, 31, 128)
    lengths = rows.norm(dim=-1)
    assert torch.allclose(lengths[:, 15], torch.ones(31), atol=1e-3)
    assert float(lengths[:, :10].max()) < 1e-3  # nothing to see far from it
    orientation = rows[15, 15].view(16, 8).sum(0)
    assert int(orientation.argmax()) in (0, 4) and float(orientation.max() / orientation.sum()) > 0.5


def test_a_class_with_one_image_and_the_seed() -> None:
    class Patches:
        recipe = {"kind": "patches of a test"}  # noqa: RUF012

        def rows(self, images: torch.Tensor) -> torch.Tensor:
            return images[:, :, ::32, ::32].flatten(2).mT.flatten(1)

    images = [torch.full((3, 64, 64), shade) for shade in (0.1, 0.15, 0.5, 0.9, 0.95)]
    labels = ["dark", "dark", "grey", "light", "light"]
    made = [VisualWords(Tools(), Patches(), 3, histogram, 3).fit(images, labels) for _ in range(2)]
    assert torch.equal(made[0].words, made[1].words)
    assert made[0].predict(images).tolist() == made[1].predict(images).tolist()
    assert made[0].predict(images)[0] == "dark" and made[0].parameters() > 9
