from __future__ import annotations

import numpy as np

from mgcap.explain.neighbours import nearest, plane


def test_nearest_is_by_cosine() -> None:
    rows = np.array([[1, 0], [0, 5], [0.9, 0.1], [-1, 0]])
    order, cosines = nearest(np.array([[2.0, 0.0]]), rows, 3)
    assert order.tolist() == [[0, 2, 1]]
    np.testing.assert_allclose(cosines, [[1, 0.9 / np.hypot(0.9, 0.1), 0]], atol=1e-6)


def test_a_map_keeps_groups_together() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(centre, 0.1, (20, 30)) for centre in (0, 3, -3)])
    for method in ("pca", "tsne"):
        flat = plane(rows, method)
        assert flat.shape == (60, 2) and flat.min() >= 0 and flat.max() <= 1
        order, _ = nearest(flat - flat.mean(0), flat - flat.mean(0), 2)
        assert np.mean(order[:, 1] // 20 == np.arange(60) // 20) > 0.9
    assert plane(rows[:1]).tolist() == [[0.5, 0.5]]
    assert np.isfinite(plane(rows[:3])).all()
