"""The examples of README and guides run as they are written; only downloads are replaced by stand-ins."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch
from rasterio.transform import from_origin
from safetensors.torch import save_file
from typer.testing import CliRunner

from mgcap.backbones import build_backbone
from mgcap.backbones import pretrained as weights
from mgcap.cli import app
from tests.backbones.fakes import publish

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in; random weights and a drawn raster stand in for downloads."""
    torch.manual_seed(0)
    for name, layer in (("resnet50-v1", "stage5"), ("alexnet", "conv5")):
        state = build_backbone(name, layer).state_dict()
        publish(monkeypatch, name, weights.state_hash(state))
        path = weights.cached_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(state, path)
    raster = tmp_path / "home.tif"
    place = {"crs": "EPSG:26910", "transform": from_origin(523_500, 5_268_000, 0.3, 0.3)}
    with rasterio.open(raster, "w", driver="GTiff", count=3, height=200, width=300, dtype="uint8", **place) as dataset:
        dataset.write(np.random.default_rng(0).integers(0, 256, (3, 200, 300), dtype=np.uint8))
    monkeypatch.setattr("mgcap.data.sample_scene.sample_scene", lambda say: raster)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def _run_examples(text: str) -> None:
    for shell in _blocks(text, "sh"):
        for line in shell.strip().splitlines():
            program, *arguments = shlex.split(line)
            assert program == "mgcap"
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, (line, done.output)
    for python in _blocks(text, "python"):
        exec(compile(python, "example", "exec"), {})


def test_readme(offline: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _run_examples(README)
    assert (offline / "model.mgcap").exists()
    assert (offline / "half.mgcap").exists()
    assert re.search(r"0\.\d+\n\['\w+'\]", capsys.readouterr().out)


@pytest.mark.parametrize(
    "guide",
    [p.name for p in sorted((ROOT / "docs").glob("*.md")) if _blocks(p.read_text(), "sh") or p.name == "torch.md"],
)
def test_guides(offline: Path, guide: str) -> None:
    _run_examples((ROOT / "docs" / guide).read_text())


def test_links_and_pictures_exist() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), (document, target)
