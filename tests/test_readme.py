"""The examples of README and guides run as they are written; only downloads are replaced by stand-ins."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import rasterio
import shapely
import torch
import typer
from pyproj import CRS
from rasterio.transform import from_origin
from safetensors.torch import save_file
from typer.testing import CliRunner

from mgcap.backbones import build_backbone
from mgcap.backbones import pretrained as weights
from mgcap.cli import app
from mgcap.geo.vectors import read_vectors
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


def _commands(text: str) -> list[list[str]]:
    """Those of indented blocks, which need more than there is offline; lines that end in a backslash go on."""
    lines = re.findall(r"^    (mgcap .*)", re.sub(r"\\\n\s*", "", text), re.MULTILINE)
    return [re.split(r"[;&|<>]", " ".join(shlex.split(line, comments=True)))[0].split() for line in lines]


@pytest.mark.parametrize("guide", ["README.md", *(f"docs/{p.name}" for p in sorted((ROOT / "docs").glob("*.md")))])
def test_commands_of_guides_have_the_options_that_are_named(guide: str) -> None:
    for line in _commands((ROOT / guide).read_text()):
        command = typer.main.get_command(app)
        for word in line[1:]:
            if word not in getattr(command, "commands", {}):  # `bench` has commands, and is one
                break
            command = command.commands[word]
        known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.split("=")[0] for word in line if word.startswith("--")} <= {*known, "--help"}, line


def test_labels_of_the_examples_lie_on_the_sample_scene() -> None:
    scene = shapely.box(523_500, 5_266_500, 525_000, 5_268_000)  # of EPSG:26910
    for name, classes in (
        ("kitsap.geojson", {"commercial", "forest", "freeway", "housing"}),
        ("kitsap-more.geojson", {"open ground"}),
    ):
        found = read_vectors(ROOT / "examples" / name, ["class"]).into(CRS.from_epsg(26910))
        assert set(found.columns["class"]) == classes
        assert shapely.within(found.geometries, scene.buffer(1)).all()
        assert shapely.is_valid(found.geometries).all()


def test_links_and_pictures_exist() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), (document, target)
