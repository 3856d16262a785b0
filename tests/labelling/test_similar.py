from __future__ import annotations

import numpy as np
from sklearn.metrics.pairwise import cosine_similarity

from mgcap.labelling.similar import similar
from tests.labelling.pools import grid_pool


def test_the_most_like_come_first() -> None:
    pool, truth = grid_pool()
    found = similar(pool, 45, 6, skip=[10, 11])
    cosines = cosine_similarity(pool.vectors.float().numpy())[45]
    cosines[[45, 10, 11]] = -2
    assert [cell for cell, _ in found] == np.argsort(-cosines)[:6].tolist()
    np.testing.assert_allclose([score for _, score in found], np.sort(cosines)[::-1][:6], atol=2e-3)
    assert {int(truth[cell]) for cell, _ in found} == {int(truth[45])}


def test_tiles_do_not_overlap() -> None:
    pool, _ = grid_pool(24, step=0.25)
    found = [cell for cell, _ in similar(pool, 100, 10)]
    places = pool.places[[100, *found]]
    apart = np.abs(places[:, None] - places).max(-1)
    assert (apart[~np.eye(len(places), dtype=bool)] >= pool.tile - 1e-3).all()
    assert len(similar(pool, 100, 10_000)) <= 36  # no more have room
