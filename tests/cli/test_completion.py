"""Completion as bash asks for it, and suggestions for what was mistyped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mgcap.cli import app
from tests.cli.run import SMALL, sentence

MGCAP = "import sys; sys.argv[0] = 'mgcap'; from mgcap.cli import main; main()"


def _completed(words: str) -> list[str]:
    place = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - (not words.endswith(" ")))}
    environment = {**os.environ, "_MGCAP_COMPLETE": "complete_bash", **place}
    done = subprocess.run([sys.executable, "-c", MGCAP], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_commands_and_options_are_completed() -> None:
    assert _completed("mgcap ev") == ["evaluate"]
    assert _completed("mgcap bench inf") == ["inference"]
    assert _completed("mgcap train --rot") == ["--rotations"]
    assert {"--save-config", "--seed", "--set"} <= set(_completed("mgcap evaluate --s"))


def test_the_script_for_bash_asks_this_program() -> None:
    done = subprocess.run([sys.executable, "-c", MGCAP, "--show-completion", "bash"], capture_output=True, text=True)
    assert "_MGCAP_COMPLETE=complete_bash" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trian"], "Did you mean 'train'?"),
        (["train", "x", "--rotatons", "3"], "--rotations"),
        (["train", "x", "--epochs", "3"], "give --tune epochs=VALUE"),
        (["evaluate", "x", "--ridge", "3"], "give --set ridge=VALUE"),
    ],
)
def test_mistyped_commands_and_options(arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2 and words in done.stderr


def test_mistyped_names(scenes: Path, model: Path, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "out"]
    picture = next(scenes.rglob("*.png"))
    name = picture.parent.name
    assert f"did you mean '{name}'" in sentence("explain", picture, "--model", model, *out, "--class", name[:-1])
    assert "did you mean 'rotations'" in sentence("ablate", scenes, *SMALL, *out, "--studies", "rotation")
    assert "did you mean 'colour'" in sentence("compare", scenes, *out, "--methods", "color")
    assert f"did you mean '{model.name}'" in sentence("predict", picture, "--model", model.with_name("modle.mgcap"))
    assert f"did you mean '{scenes.name}'" in sentence("evaluate", scenes.with_name(f"{scenes.name}x"), *out)
    assert "did you mean 'tsne'" in sentence("explain", picture, *out, "--map", "tsn")
    assert "did you mean 'json'" in sentence("predict", picture, "--format", "jsn")
