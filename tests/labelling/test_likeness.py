from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import cosine_similarity

from mgcap.labelling import likeness
from mgcap.labelling.likeness import Nearest
from tests.labelling.pools import grid_pool


@pytest.mark.parametrize("together", [16_384, 64])
def test_cosines_are_those_of_centred_vectors(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likeness, "TOGETHER", together)
    pool, _ = grid_pool(12)
    vectors = pool.vectors.double().numpy()
    oracle = cosine_similarity(vectors - vectors.mean(0))
    some = np.array([3, 77, 140])
    np.testing.assert_allclose(pool.likeness.to(some), oracle[:, some], atol=1e-5)
    np.testing.assert_allclose(pool.likeness.to(some, np.arange(9)), oracle[:9, some], atol=1e-5)
    assert pool.likeness.spread == pytest.approx(((vectors - vectors.mean(0)) ** 2).sum(1).mean(), rel=1e-5)


def test_distances_follow_labels_that_come_and_go() -> None:
    pool, _ = grid_pool(12)
    nearest, rng = Nearest(pool.likeness), np.random.default_rng(1)
    vectors = pool.vectors.double().numpy()
    oracle = 1 - cosine_similarity(vectors - vectors.mean(0))
    assert (nearest.distance(np.array([], int)) == 2).all()
    for count in (5, 40, 3, 3, 30, 0, 1):
        cells = rng.permutation(len(pool))[:count]
        expected = oracle[:, cells].min(1) if count else np.full(len(pool), 2.0)
        np.testing.assert_allclose(nearest.distance(cells), expected, atol=1e-5)


def test_where_every_cell_is_labelled_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a model is taught by thousands of labels, whose cells are all that there are."""
    pool, _ = grid_pool(12)
    monkeypatch.setattr(likeness.Likeness, "to", None)
    assert (Nearest(pool.likeness).distance(np.arange(len(pool))) == 0).all()
