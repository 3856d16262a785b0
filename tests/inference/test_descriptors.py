from __future__ import annotations

from pathlib import Path

import pytest
import torch
from sklearn.decomposition import PCA

from mgcap import MGCAP, MGCAPConfig
from mgcap.data.folders import open_folder
from mgcap.data.images import read_image
from mgcap.errors import DataError
from mgcap.inference import descriptors
from mgcap.inference.calibration import fit_reductions
from mgcap.inference.descriptors import cached_answers, stream_answers
from mgcap.inference.engines.torch import TorchEngine
from mgcap.runtime import Runtime

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


def test_answers_by_way_of_the_cache_are_the_same_piece_by_piece(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "PIECE", 4)
    model = _model()
    engine = TorchEngine(list(model.backbones), compiled=False)
    broken = tmp_path / "broken.png"
    broken.write_text("no")
    paths = [*open_folder(scenes).paths[:5], broken, *open_folder(scenes).paths[5:9]]
    errors: list[int] = []
    steps: list[int] = []

    def answers() -> tuple[list[int], torch.Tensor]:
        found = cached_answers(model, engine, paths, lambda i, e: errors.append(i), Runtime(), steps.append)
        blocks = list(found)
        return [i for indices, _ in blocks for i in indices], torch.cat([a.probabilities for _, a in blocks])

    kept, first = answers()
    assert kept == [0, 1, 2, 3, 4, 6, 7, 8, 9] and errors == [5] and sum(steps) == 10
    streamed = torch.cat([a.probabilities for _, a in stream_answers(model, engine, paths, lambda i, e: None)])
    assert torch.allclose(first, streamed, atol=1e-3)
    monkeypatch.setattr(TorchEngine, "features", None)  # what was seen is not looked at again
    assert torch.equal(answers()[1], first)
