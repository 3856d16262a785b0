from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.data.imagery import Imagery, imagery_of
from tests.conftest import TINY


def test_bytes(tmp_path: Path) -> None:
    for number, side in enumerate((40, 50, 60)):
        Image.new("RGB", (side, side)).save(tmp_path / f"{number}.png")
    found = imagery_of(sorted(tmp_path.iterdir()), 0.3)
    assert found == Imagery(dtype="uint8", white=255, side=50, resolution=0.3)


def test_deep_pixels_keep_the_largest_white(tmp_path: Path) -> None:
    for number, largest in enumerate((900, 3000)):
        tifffile.imwrite(tmp_path / f"{number}.tif", np.full((32, 32, 3), largest, np.uint16), photometric="rgb")
    (tmp_path / "broken.tif").write_bytes(b"II*\0")
    found = imagery_of(sorted(tmp_path.iterdir()))
    assert (found.dtype, found.white, found.side) == ("uint16", 4095, 32)


def test_arrays() -> None:
    floats = imagery_of([np.zeros((20, 30, 3), np.float32)])
    assert (floats.dtype, floats.white, floats.side) == ("float32", 1, 24)
    assert imagery_of(["none.png"]) == Imagery()
    assert imagery_of([torch.zeros(3, 20, 30, dtype=torch.bfloat16)]).white == 1
    truth = imagery_of([np.zeros((20, 30), np.bool_)])
    assert (truth.dtype, truth.white) == ("bool", 1)


def test_images_that_mark_missing_pixels_are_skipped(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "missing.tif", np.full((32, 32), 3.4e38, np.float32))
    tifffile.imwrite(tmp_path / "good.tif", np.full((32, 32), 0.5, np.float32))
    assert imagery_of(sorted(tmp_path.iterdir())).white == 1


def test_a_model_keeps_it(scenes: Path, tmp_path: Path) -> None:
    folder = open_folder(scenes)
    model = SceneClassifier(**{**TINY, "cache": False, "resolution": 0.7}).fit(folder.paths, folder.labels)
    model.save(tmp_path / "m.mgcap")
    loaded = SceneClassifier.load(tmp_path / "m.mgcap", engine="torch")
    assert loaded.imagery_ == Imagery(side=64, resolution=0.7)
    with pytest.raises(ValueError, match="resolution"):
        SceneClassifier(**{**TINY, "resolution": -1}).fit(folder.paths, folder.labels)
