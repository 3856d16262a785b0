from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.run import SMALL, run


@pytest.fixture(scope="session")
def model(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small trained model."""
    path = tmp_path_factory.mktemp("model") / "model.mgcap"
    done = run("train", scenes, "--out", path, "--train-ratio", "0.5", *SMALL)
    assert "accuracy on 12 held-out images" in done.stderr and str(path) in done.stderr and done.stdout == ""
    return path
