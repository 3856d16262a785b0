"""Every crafted file gets one sentence, or is read by itself; nothing of another file comes through."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pytest

from mgcap.classifier import SceneClassifier
from mgcap.data.images import read_image
from mgcap.errors import BundleError, ImageError, MgcapError, RasterError, WeightsError
from mgcap.geo.opening import open_raster
from tests.attacks.craft import BUNDLES, IMAGES, OWN, RASTERS, Case


def _name(case: Case) -> str:
    return case.name


def _check(case: Case, error: MgcapError) -> None:
    assert case.expected is not None, error
    assert re.search(case.expected, str(error)), error
    assert "\n" not in str(error)


@pytest.mark.parametrize("case", RASTERS, ids=_name)
def test_raster(case: Case, tmp_path: Path) -> None:
    path = case.make(tmp_path)
    try:
        with open_raster(path) as dataset:
            seen = set(np.unique(dataset.read())) | set(np.unique(dataset.read(out_shape=(3, 64, 64))))
            assert seen == {OWN}
            assert dataset.dataset_mask(out_shape=(64, 64)).min() == 255
    except RasterError as error:
        _check(case, error)
    else:
        assert case.expected is None


@pytest.mark.parametrize("case", IMAGES, ids=_name)
def test_image(case: Case, tmp_path: Path) -> None:
    began = time.perf_counter()
    with pytest.raises(ImageError) as raised:
        read_image(case.make(tmp_path))
    _check(case, raised.value)
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("case", BUNDLES, ids=_name)
def test_bundle(case: Case, tmp_path: Path) -> None:
    with pytest.raises((BundleError, WeightsError)) as raised:
        SceneClassifier.load(case.make(tmp_path), engine="torch")
    _check(case, raised.value)
