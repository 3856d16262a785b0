"""One thread per worker, no real cache, tiny scenes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

from mgcap.data.synthetic import CLASSES, draw_scene

settings.register_profile("mgcap", deadline=None)  # how fast the machine is, is no property of the code
settings.load_profile("mgcap")


def pytest_configure(config: pytest.Config) -> None:
    if os.environ.get("PYTEST_XDIST_WORKER"):
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_real_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read from or written to the user's cache, so no test can lean on a download."""
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
