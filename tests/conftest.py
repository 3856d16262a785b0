"""One thread per worker, no real cache, tiny scenes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image
from threadpoolctl import threadpool_limits

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import open_folder
from mgcap.data.synthetic import CLASSES, draw_scene

settings.register_profile("mgcap", deadline=None)  # how fast the machine is, is no property of the code
settings.load_profile("mgcap")


def pytest_configure(config: pytest.Config) -> None:
    # a test may import OpenVINO by itself; its telemetry works in child processes, and waits for them at exit
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    if os.environ.get("PYTEST_XDIST_WORKER"):
        torch.set_num_threads(1)
        threadpool_limits(1)  # of BLAS: many threads for small matrices take minutes beside another worker
    # fixtures of a session or module are made before those of a test, so the user's cache is put away before any
    home = tempfile.TemporaryDirectory(prefix="mgcap-tests-")
    os.environ["MGCAP_HOME"] = home.name
    config.add_cleanup(home.cleanup)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest tests first, so that no worker waits for another at the end."""
    items.sort(key=lambda item: not item.path.name.startswith("test_readme"))


@pytest.fixture(autouse=True)
def _no_real_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has a cache of its own, so none can lean on a download or on another test."""
    monkeypatch.setenv("MGCAP_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes x 6 scenes of 64 pixels."""
    root = tmp_path_factory.mktemp("scenes")
    for name in (CLASSES[1], CLASSES[2], CLASSES[4], CLASSES[9]):
        (root / name).mkdir()
        for index in range(6):
            Image.fromarray(draw_scene(name, 0, index, 64)).save(root / name / f"{name}{index}.png")
    return root


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


#: A model that is built and run in a moment.
TINY = {
    "weights": "random",
    "engine": "torch",
    "backbone": "alexnet",
    "channels": 8,
    "size": 64,
    "rotations": 2,
    "granularities": 1.0,
}


Write = Callable[..., Path]


@pytest.fixture
def write_raster(tmp_path: Path) -> Write:
    """Writes an array [bands, H, W] as a GeoTIFF, by default at 0.5 m in Germany."""
    import rasterio
    from rasterio.transform import from_origin

    def write(values: Any, name: str = "scene.tif", **profile: Any) -> Path:
        values = np.asarray(values)
        colours = profile.pop("colorinterp", None)
        mask = profile.pop("mask", None)
        given = {
            "driver": "GTiff",
            "count": len(values),
            "height": values.shape[1],
            "width": values.shape[2],
            "dtype": values.dtype,
            "crs": "EPSG:25832",
            "transform": from_origin(500_000, 5_600_000, 0.5, 0.5),
            **profile,
        }
        path = tmp_path / name
        with rasterio.open(path, "w", **given) as dataset:
            dataset.write(values)
            if colours:
                dataset.colorinterp = colours
            if mask is not None:
                dataset.write_mask(mask)
        return path

    return write


@pytest.fixture(scope="session")
def model_file(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that knows its resolution: tiles are 64 pixels of 0.5 m."""
    folder = open_folder(scenes)
    path = tmp_path_factory.mktemp("geo") / "tiny.mgcap"
    SceneClassifier(**{**TINY, "resolution": 0.5, "cache": False}).fit(folder.paths, folder.labels).save(path)
    return path


@pytest.fixture
def picture(scenes: Path) -> Any:
    """A raster [3, 150, 200] patched together from scenes: not a whole number of tiles."""
    from PIL import Image

    files = sorted(scenes.glob("*/*0.png")) + sorted(scenes.glob("*/*1.png")) + sorted(scenes.glob("*/*2.png"))
    rows = [np.concatenate([np.asarray(Image.open(f)) for f in files[4 * r : 4 * r + 4]], 1) for r in range(3)]
    return np.moveaxis(np.concatenate(rows, 0)[:150, :200], -1, 0)
