from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from mgcap.cli import app
from mgcap.cli.console import in_flags
from tests.cli.run import SMALL, run, run_apart, sentence


def _commands(command: Any = None, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group by its names."""
    command = typer.main.get_command(app) if command is None else command
    yield names, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*names, name))


def test_help_has_an_example_everywhere() -> None:
    found = dict(_commands())
    assert {(), ("train",), ("bench",), ("bench", "inference"), ("config", "write")} <= found.keys()
    for names, command in found.items():
        assert "Example: mgcap" in run(*names, "--help").stdout, names
        assert not [parameter.name for parameter in command.params if not parameter.help], names
    assert re.match(r"mgcap \d+\.\d+", run("--version").stdout)


def test_in_a_process_of_its_own(scenes: Path, model: Path) -> None:
    done = run_apart("predict", next(scenes.rglob("*.png")), "--model", model)
    assert done.returncode == 0 and done.stdout.startswith("path,class,probability")
    done = run_apart("predict", "none.png", "--model", model)
    assert done.returncode == 1 and "there is no file none.png" in done.stdout and "Traceback" not in done.stderr


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys, mgcap.cli; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    for arguments in (["--debug", "train", tmp_path / "none"], ["train", tmp_path / "none", "--debug"]):
        done = run_apart(*arguments)
        assert done.returncode == 1 and "Traceback" in done.stderr and "DataError" in done.stderr


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("`min_valid` takes 0 to 1, not 2", "--min-valid takes 0 to 1, not 2"),
        ("say it with `bands`, as `bands=4,3,2`", "say it with --bands, as --bands 4,3,2"),
        ("seed: must be a number; bands: are three", "seed: must be a number; --bands: are three"),
        ("register your file with `mgcap.backbones.add_file`", "register your file with --add"),
        ("channels: too many; give `channels=64` or less", "channels: too many; give --set channels=64 or less"),
        ("`tensor` of another library; what: is this", "`tensor` of another library; what: is this"),
    ],
)
def test_the_librarys_parameters_are_flags_here(said: str, shown: str) -> None:
    assert in_flags(said, ("bands", "min_valid", "add", "settings")) == shown


def test_errors_of_values_name_flags(scenes: Path, tmp_path: Path) -> None:
    train = ["train", scenes, "--out", tmp_path / "m.mgcap", *SMALL]
    assert "--regularisation: must be 'auto' or a positive number" in sentence(*train, "--regularisation", -1)
    assert "--rotations: Input should be" in sentence(*train, "--rotations", 0)
    assert "--descriptor: 'mine' is unknown" in sentence(*train, "--descriptor", "mine")
    studies = ["ablate", scenes, "--out", tmp_path / "a", *SMALL, "--studies", "gradient"]
    assert "needs --finetune" in sentence(*studies)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train none --preset compcat", "'compcat' is unknown (did you mean 'compact'?); allowed are 'compact'"),
        ("train none --descriptor universl", "did you mean 'universal'"),
        ("predict none.png --engine opnvino", "--engine: 'opnvino' is unknown (did you mean 'openvino'?)"),
        ("map RASTER --model none.mgcap --out x.xyz", "--out takes a .gpkg or .geojson file, or a .parquet one"),
        ("map RASTER --model none.mgcap --tile 3miles", "--tile takes metres or pixels"),
        ("map RASTER --model none.mgcap --bands a,b", "--bands takes numbers"),
        ("map RASTER --model none.mgcap --design stratifed", "did you mean 'stratified'"),
        ("export --model none.mgcap --format onx", "--format: 'onx' is unknown (did you mean 'onnx'?)"),
        ("export --model none.mgcap --out m.xyz", "onnx is written to a .onnx file, not to"),
    ],
)  # fmt: skip
def test_a_typo_is_said_before_anything_is_opened(command: str, words: str, scenes: Path, tmp_path: Path) -> None:
    """There is no such model and no such folder, which would be said otherwise."""
    raster = str(next(scenes.rglob("*.png")))
    assert words in sentence(*(raster if word == "RASTER" else word for word in command.split()))
