"""Completion as bash asks for it, and suggestions for what was mistyped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mgcap.backbones import BACKBONES
from mgcap.baselines import find_methods
from mgcap.baselines.method import FAMILIES
from mgcap.cli import app, completion
from mgcap.config import PRESETS, MGCAPConfig
from mgcap.evaluation.ablation import ablation_studies
from mgcap.inference.engines import ENGINES
from mgcap.persistence.export import FORMATS
from mgcap.spectral import LAYERS
from mgcap.training.setup import DESCRIPTORS
from tests.cli.run import SMALL, sentence

#: Those that come with the package; other tests may add more.
OWN_BACKBONES = [name for name, record in BACKBONES.items() if record.weights is not None]
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


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("train --preset ", {"compact", "tiny", "paper", "authors-code"}),
        ("train --backbone resnet5", {"resnet50", "resnet50-v1"}),
        ("train --normalisation l", {"log"}),
        ("evaluate --weights r", {"random"}),
        ("evaluate --descriptor u", {"universal"}),
        ("predict --engine openvino", {"openvino", "openvino-fp32"}),
        ("demo --engine torch-", {"torch-compile"}),
        ("predict --device c", {"cpu", "cuda"}),
        ("predict --format ", {"table", "csv", "json"}),
        ("map --format ", {"gpkg", "geojson", "parquet"}),
        ("map --scale p", {"percentiles"}),
        ("export --format ", {"onnx", "openvino", "pt2"}),
        ("explain --map ", {"tsne", "pca", "none"}),
        ("ablate --studies rotations,rot", {"rotations,rotation_pooling"}),
        ("compare --methods lbp,gist-", {"lbp,gist-rbf"}),
        ("train --set chan", {"channels="}),
        ("train --set rot", {"rotation_pooling="}),  # --rotations is a flag of its own
        ("train --tune epo", {"epochs="}),
        ("weights fetch alex", {"alexnet"}),
        ("train --regularisation a", {"auto"}),
    ],
)
def test_values_are_completed(words: str, offered: set[str]) -> None:
    assert set(_completed(f"mgcap {words}")) == offered


@pytest.mark.parametrize("command", ["predict", "map", "explain", "export", "serve", "evaluate"])
def test_models_are_completed(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model.mgcap", "umbria.mgcap", "umbria.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert _completed(f"mgcap {command} --model ") == ["ucmerced", "model.mgcap", "umbria.mgcap"]
    assert _completed(f"mgcap {command} --model {tmp_path}/u") == [f"{tmp_path}/umbria.mgcap"]
    assert _completed(f"mgcap {command} --model nowhere/") == []


def test_names_are_those_of_the_registries() -> None:
    studies = ablation_studies(MGCAPConfig(), finetuned=True)
    families = {family for family in FAMILIES if "," not in family}
    assert set(completion.PRESETS) == set(PRESETS) and set(completion.BACKBONES) == set(OWN_BACKBONES)
    assert set(completion.NORMALISATIONS) == set(LAYERS) and completion.DESCRIPTORS == DESCRIPTORS
    assert completion.ENGINES == ENGINES and set(completion.EXPORTS) == set(FORMATS)
    assert tuple(studies) == completion.STUDIES
    own = {name for name, (_, make) in find_methods([]).items() if make.__module__.startswith("mgcap.")}
    assert set(completion.METHODS) == {"all", *families, *own}


def test_completion_does_not_wait_for_torch() -> None:
    code = f"import atexit, os; atexit.register(lambda: os._exit('torch' in sys.modules)); {MGCAP}"
    place = {"_MGCAP_COMPLETE": "complete_bash", "COMP_WORDS": "mgcap map --model ", "COMP_CWORD": "3"}
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, **place}, capture_output=True)
    assert done.returncode == 0


def test_the_script_for_bash_asks_this_program() -> None:
    own = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # whatever shell runs the tests
    done = subprocess.run(
        [sys.executable, "-c", MGCAP, "--show-completion", "bash"], capture_output=True, text=True, env=own
    )
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
