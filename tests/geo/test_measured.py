from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import SceneFolder, open_folder
from mgcap.data.splits import Split
from mgcap.data.stream import to_tensor
from mgcap.errors import DataError
from mgcap.geo import measured
from mgcap.geo.grid import Grid
from mgcap.geo.measured import bench_map, mosaic_accuracy, timed
from mgcap.inference import layout
from tests.conftest import TINY


@pytest.fixture(scope="module")
def folder(scenes: Path) -> SceneFolder:
    return open_folder(scenes)


def test_both_ways_are_measured_in_one_run(
    model_file: Path, write_raster: Any, picture: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "MANY", 100)
    raster, most = write_raster(picture[:, :128, :192]), layout.MOST_WINDOWS
    classifier = SceneClassifier.load(model_file, engine="torch")
    report = json.loads(json.dumps(bench_map(classifier, model_file, raster, cells=2)))
    assert (report["tiles"], report["cells"]) == (2 * 3, 4 * 6)
    assert all(report[name] > 0 for name in report if name.startswith("seconds"))
    assert report["seconds_overlapping_tiles_estimated"] == pytest.approx(
        report["seconds_tile_by_tile"] * 3 * 5 / 6, abs=0.02
    )  # tiles of 64 pixels every 32 of 128 and of 192
    assert report["times_tile_by_tile"] == pytest.approx(
        report["seconds_index_and_map"] / report["seconds_tile_by_tile"], rel=0.1, abs=0.05
    )
    assert sum(report["shares"].values()) == pytest.approx(1, abs=1e-3) and "unknown" not in report["shares"]
    assert 0 <= report["sure_tiles"] <= 6 and report["agreement_with_blocks_of_half_the_size"] > 0.9
    assert report["peak_memory_mib"] > 100 and report["seconds_search_of_100_cells"] > 0
    assert 0 <= report["agreement_over_all_tiles"] <= 1 and report["seconds_second_map"] > 1  # a process of its own
    assert most == layout.MOST_WINDOWS and [file.name for file in tmp_path.iterdir()] == [raster.name]


def _mapped(probabilities: Any, grid: Grid) -> Any:
    values = np.array(probabilities, np.float32)
    classes = np.where(np.isnan(values[..., 0]), -1, values.argmax(-1))
    return SimpleNamespace(
        plan=SimpleNamespace(grid=grid), found=SimpleNamespace(probabilities=values, classes=classes)
    )


def test_sure_tiles_are_compared_with_the_middle_of_theirs() -> None:
    """Three tiles of 40 pixels, each of 4 x 4 cells, on 120 x 40: one is not sure, one is not the same."""
    dense = np.tile(np.array([0.2, 0.8]), (4, 12, 1))
    dense[1:3, 1:3] = [0.9, 0.1]  # the middle of the first tile; around it is something else
    dense[1:3, 9:11] = [[[0.4, 0.6], [0.6, 0.4]], [[np.nan, np.nan], [0.95, 0.05]]]  # the mean is the first class
    fine = _mapped(dense, Grid(120, 40, 10, 10, 4))
    for given, expected in (
        ([[0.95, 0.05], [0.6, 0.4], [0.08, 0.92]], (0.5, 2)),
        ([[0.95, 0.05], [0.95, 0.05], [0.92, 0.08]], (2 / 3, 3)),
        ([[0.95, 0.05], [np.nan, np.nan], [0.92, 0.08]], (1, 2)),
    ):
        assert measured._agreement(_mapped([given], Grid(120, 40, 40, 40)), fine, 4) == pytest.approx(expected)
    everywhere = measured._agreement(
        _mapped([[[0.95, 0.05], [0.6, 0.4], [0.08, 0.92]]], Grid(120, 40, 40, 40)), fine, 4, 0
    )
    assert everywhere == pytest.approx((1 / 3, 3))
    agreement, sure = measured._agreement(_mapped([[[0.6, 0.4]] * 3], Grid(120, 40, 40, 40)), fine, 4)
    assert np.isnan(agreement) and sure == 0


@pytest.fixture(scope="module")
def classifier(folder: SceneFolder) -> SceneClassifier:
    config = {**TINY, "layer": "conv1", "rotations": 4, "cache": False}
    return SceneClassifier(**config).fit(folder.paths, folder.labels)


def test_images_stand_side_by_side_in_their_order(
    classifier: SceneClassifier, folder: SceneFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "ACROSS", 3)
    files = list(folder.paths[2:20:2])
    found = torch.nn.functional.normalize(measured._mosaic(classifier, files, 64), dim=1)
    alone = torch.nn.functional.normalize(torch.from_numpy(classifier.transform(files)), dim=1)
    assert (found @ alone.T).argmax(1).tolist() == list(range(9))
    assert to_tensor(files[0]).shape[-1] == 64


def test_accuracy_is_that_of_what_the_mosaics_say(
    classifier: SceneClassifier, folder: SceneFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "ACROSS", 2)
    split = Split(tuple(range(0, 24, 2)), tuple(range(1, 22, 2)))  # eleven for the test: two mosaics of four
    asked: list[list[Path]] = []

    def beside(model: SceneClassifier, files: list[Path], side: int) -> torch.Tensor:
        """As if each stood alone, but for the first of each mosaic, which shows the last."""
        asked.append(files)
        return torch.from_numpy(classifier.transform([files[-1], *files[1:]]))

    monkeypatch.setattr(measured, "_mosaic", beside)
    report = mosaic_accuracy(classifier, folder, split, seed=2)
    chosen = [file for files in asked for file in files]
    assert [len(files) for files in asked] == [4, 4] and len(set(chosen)) == 8
    assert {folder.paths.index(file) for file in chosen} <= set(split.test)
    said = classifier.predict([name for files in asked for name in (files[-1], *files[1:])])
    labels = [file.parent.name for file in chosen]
    assert report == {
        "images": 8,
        "accuracy_alone": pytest.approx(100 * np.mean(classifier.predict(chosen) == labels)),
        "accuracy_in_mosaics": pytest.approx(100 * np.mean(said == labels)),
    }


def test_too_few_images_for_a_mosaic_are_refused(classifier: SceneClassifier, folder: SceneFolder) -> None:
    with pytest.raises(DataError, match="a mosaic takes 64 test images; there are 2"):
        mosaic_accuracy(classifier, folder, Split((0,), (1, 2)))


def test_time_is_taken() -> None:
    seconds, result = timed(lambda: sum(range(1000)))
    assert result == 499_500 and 0 < seconds < 5
