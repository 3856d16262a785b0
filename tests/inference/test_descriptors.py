from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.decomposition import PCA

from mgcap import MGCAP, MGCAPConfig
from mgcap.data.folders import open_folder
from mgcap.data.images import read_image
from mgcap.errors import DataError
from mgcap.inference.calibration import fit_reductions
from mgcap.inference.descriptors import stream_answers

CONFIG = MGCAPConfig(backbone="alexnet", channels=6, size=64, rotations=2, granularities=(1.0, 0.8))


def _model() -> MGCAP:
    torch.manual_seed(0)
    return MGCAP(CONFIG).eval()


def test_pca_is_fitted_to_local_features(scenes: Path) -> None:
    model = _model()
    paths = open_folder(scenes).paths[:4]
    (model.reduction,) = fit_reductions(model, None, paths, [range(4)])
    images = torch.stack([read_image(p) for p in paths])
    with torch.no_grad():  # one batch: all at the first rotation
        local = torch.cat([model.features_at(images, s, [0.0]) for s in range(2)]).flatten(0, 1)
    flat = local.transpose(1, 2).reshape(-1, 256).double().numpy()
    axes = PCA(6, svd_solver="full").fit(flat).components_
    cosines = (model.reduction.basis.double().numpy() * axes).sum(1)
    assert abs(cosines).min() > 0.999


def test_rows_are_the_models_own_in_order_with_errors_skipped(scenes: Path, tmp_path: Path) -> None:
    model = _model()
    broken = tmp_path / "broken.png"
    broken.write_text("no")
    paths = [*open_folder(scenes).paths[:3], broken, *open_folder(scenes).paths[3:5]]
    errors: list[int] = []
    steps: list[int] = []
    blocks = list(stream_answers(model, None, paths, lambda i, e: errors.append(i), steps.append))
    kept, rows = [i for indices, _ in blocks for i in indices], torch.cat([part.descriptors for _, part in blocks])
    assert kept == [0, 1, 2, 4, 5] and errors == [3] and sum(steps) == 5
    with torch.no_grad():
        for row, index in zip(rows, kept, strict=True):
            assert torch.allclose(row, model.descriptor(read_image(paths[index])[None])[0], atol=1e-5)


def test_a_pca_without_any_image_is_one_sentence(tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_text("no")
    with pytest.raises(DataError, match="no image could be read"):
        fit_reductions(_model(), None, [broken], [range(1)])
