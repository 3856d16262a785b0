from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from mgcap.reduction import FeatureMoments, Reduction


def test_pca_against_scikit_learn(rng: np.random.Generator) -> None:
    features = rng.standard_normal((7, 10, 30)) * np.linspace(3, 0.5, 10)[:, None] + rng.standard_normal((10, 1))
    moments = FeatureMoments(10)
    for part in torch.from_numpy(features).split(3):
        moments.add(part)
    reduction = Reduction("pca", 10, 4).double()
    assert not reduction.fitted
    reduction.fit(moments)
    assert reduction.fitted
    flat = features.transpose(0, 2, 1).reshape(-1, 10)
    expected = PCA(4, svd_solver="full").fit_transform(flat)
    ours = reduction(torch.from_numpy(features)).numpy().transpose(0, 2, 1).reshape(-1, 4)
    np.testing.assert_allclose(np.abs(ours), np.abs(expected), atol=1e-9)
    assert not list(reduction.parameters())


def test_learnt_and_none() -> None:
    features = torch.randn(2, 6, 5)
    learnt = Reduction("learnt", 6, 3)
    assert learnt(features).shape == (2, 3, 5)
    assert sum(p.numel() for p in learnt.parameters()) == 3 * 6 + 6
    learnt(features).sum().backward()
    assert learnt.basis.grad is not None
    none = Reduction("none", 6, None)
    assert none(features) is features and none.channels == 6
    with pytest.raises(ValueError, match="pca"):
        learnt.fit(FeatureMoments(6))


def test_random_projection_until_it_is_fitted_is_the_same_every_time() -> None:
    assert torch.equal(Reduction("pca", 6, 3).basis, Reduction("pca", 6, 3).basis)
    with pytest.raises(ValueError, match="at least two"):
        Reduction("pca", 6, 3).fit(FeatureMoments(6))
