from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from mgcap import backbones
from mgcap.cli.options import TrainingOptions
from mgcap.cli.settings import parse_pairs, read_config, toml
from mgcap.config import MGCAPConfig
from mgcap.errors import DataError
from mgcap.training.recipe import Finetune
from tests.cli.run import SMALL, run, sentence


def _options(path: Path, preset: str = "compact", **given: object) -> TrainingOptions:
    return TrainingOptions(preset=preset, from_file=read_config(str(path)), **given)  # type: ignore[arg-type]


def test_what_is_written_is_read_as_the_same(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    values = ["--rotations", 3, "--granularities", "1.0,0.7", "--set", "clip=[1e-4,1e4]", "--set", "unbiased=true"]
    tuning = ["--finetune", "--tune", "epochs=5", "--tune", "precision=bf16", "--tune", "validation=0.1"]
    run("config", "write", file, "--preset", "paper", *values, *tuning, "--seed", 7, "--no-cache")
    written = tomllib.loads(file.read_text())
    assert (written["preset"], written["seed"], written["cache"]) == ("paper", 7, False)
    read = _options(file, "paper")
    wanted = MGCAPConfig(preset="paper", rotations=3, granularities=(1.0, 0.7), clip=(1e-4, 1e4), unbiased=True)
    assert read.config() == wanted
    assert read.recipe() == Finetune(epochs=5, precision="bf16", validation=0.1)
    assert set(written["finetune"]) | {"granularities_a_step", "rotations_a_step", "crop", "patience", "chunk"} == set(
        Finetune.model_fields
    )
    assert _options(file, "paper", rotations=8, tune=["epochs=2"]).config().rotations == 8
    assert _options(file, "paper", tune=["epochs=2"]).recipe() == Finetune(epochs=2, precision="bf16", validation=0.1)
    assert _options(file, "paper", finetune=False).recipe() is None


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("seed = 3")
    assert f"{file} is there already; give another name, or --force" in sentence("config", "write", file)
    assert file.read_text() == "seed = 3"
    run("config", "write", file, "--force")
    assert tomllib.loads(file.read_text())["seed"] == 0


def test_commands_take_a_file_and_the_command_line_wins(scenes: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    options = ["--train-ratio", 0.5, "--runs", 2, *SMALL]
    first = json.loads(
        run("evaluate", scenes, *options, "--save-config", file, "--out", tmp_path / "a", "--json", "-").stdout
    )
    written = tomllib.loads(file.read_text())
    assert written["runs"] == 2 and written["weights"] == "random" and written["model"]["channels"] == 8
    again = json.loads(run("evaluate", scenes, "--config", file, "--out", tmp_path / "b", "--json", "-").stdout)
    assert again["runs"] == first["runs"] and again["configuration"] == first["configuration"]
    fewer = run(
        "evaluate", scenes, "--config", file, "--runs", 1, "--rotations", 1, "--out", tmp_path / "c", "--json", "-"
    )
    report = json.loads(fewer.stdout)
    assert report["runs"] != first["runs"] and len(report["runs"]) == 1 and report["configuration"]["rotations"] == 1
    done = run("train", scenes, "--config", file, "--train-ratio", 0.5, "--out", tmp_path / "m.mgcap")
    assert "runs is not an option of train and is skipped" in done.stderr and (tmp_path / "m.mgcap").exists()


def test_a_saved_model_stays_in_the_file(scenes: Path, model: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "run.toml", ["--json", "-"]
    first = run("evaluate", scenes, "--model", model, "--save-config", file, "--out", tmp_path / "a", *out)
    assert tomllib.loads(file.read_text())["model"] == str(model)
    again = run("evaluate", scenes, "--config", file, "--out", tmp_path / "b", *out)
    assert json.loads(again.stdout)["runs"] == json.loads(first.stdout)["runs"]
    assert json.loads(again.stdout)["test_images"] == 24  # all of them, as of a saved model


@pytest.mark.parametrize("command", ["predict", "map", "explain", "export", "serve", "compare", "demo"])
def test_commands_that_make_no_model_skip_its_tables(command: str, tmp_path: Path) -> None:
    file, kept = tmp_path / "run.toml", tmp_path / "kept.toml"
    file.write_text('preset = "paper"\n[model]\nrotations = 3\n[finetune]\n')
    none = ["--model", tmp_path / "none.mgcap"]  # every command ends before it begins
    arguments: dict[str, list[object]] = {
        "predict": ["x.png", *none],
        "map": ["x.tif", *none],
        "explain": none,
        "export": [*none, "--out", tmp_path / "x.onnx"],
        "serve": ["--token", "secret"],
        "compare": ["--list"],
        "demo": ["--per-class", 0],
    }
    code = {"compare": 0, "demo": 2}.get(command, 1)
    told = run(command, *arguments[command], "--config", file, "--save-config", kept, code=code).stderr
    for what in ("preset", "the table [model]", "the table [finetune]"):
        assert f"{what} is not an option of {command} and is skipped" in told
    if command != "demo":
        written = tomllib.loads(kept.read_text())
        assert "finetune" not in written and "token" not in written and not isinstance(written.get("model"), dict)


def test_a_map_keeps_its_options(scenes: Path, model: Path, tmp_path: Path) -> None:
    raster, file = next(scenes.rglob("*.png")), tmp_path / "map.toml"
    maps = [tmp_path / f"{name}.geojson" for name in "abc"]
    options = ["--model", model, "--engine", "torch", "--tile", "32px", "--overlap", 0.5, "--format", "geojson"]
    run("map", raster, *options, "--save-config", file, "--out", maps[0])
    written = tomllib.loads(file.read_text())
    wanted = {"model": str(model), "engine": "torch", "tile": "32px", "overlap": 0.5, "format": "geojson"}
    assert wanted.items() <= written.items() and not {"out", "config", "save_config"} & set(written)
    run("map", raster, "--config", file, "--save-config", tmp_path / "again.toml", "--out", maps[1])
    assert tomllib.loads((tmp_path / "again.toml").read_text()) == written
    assert maps[0].read_bytes() == maps[1].read_bytes()
    run("map", raster, "--config", file, "--overlap", 0, "--exact", "--out", maps[2])
    assert len(json.loads(maps[2].read_text())["features"]) < len(json.loads(maps[1].read_text())["features"])
    file.write_text("overlp = 0.5")
    told = sentence("map", raster, "--config", file, "--out", maps[2])
    assert "'overlp' is unknown (did you mean 'overlap'?)" in told


def test_predictions_keep_their_options(scenes: Path, model: Path, tmp_path: Path) -> None:
    file, images = tmp_path / "predict.toml", next(scenes.iterdir())
    first = run("predict", images, "--model", model, "--format", "json", "--top", 2, "--save-config", file).stdout
    written = tomllib.loads(file.read_text())
    assert (written["model"], written["format"], written["top"], written["engine"]) == (str(model), "json", 2, "auto")
    assert run("predict", images, "--config", file).stdout == first
    assert run("predict", images, "--config", file, "--format", "csv").stdout.startswith("path,class")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sed = 1", "'sed' is unknown (did you mean 'seed'?)"),
        ("rotations = 4", "'rotations' belongs into the table [model]"),
        ("rotation = 4", "'rotation' is unknown (did you mean 'rotations'?)"),
        ("[modl]\nrotations = 4", "'modl' is unknown (did you mean 'model'?)"),
        ("[finetun]\nepochs = 4", "'finetun' is unknown (did you mean 'finetune'?)"),
        ("[model]\nchanels = 8", "'chanels' is unknown in [model] (did you mean 'channels'?)"),
        ("[finetune]\nepoch = 8", "'epoch' is unknown in [finetune] (did you mean 'epochs'?)"),
        ("seed = ", "is not a TOML file"),
        ("model = 3", "model must be a table, [model], or the file of a model"),
        ("finetune = 3", "finetune must be a table, [finetune]"),
        ("[model]\nrotations = 0", "rotations: Input should be greater than or equal to 1"),
    ],
)
def test_a_bad_file_gets_one_sentence(text: str, words: str, scenes: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(text)
    assert words in sentence("train", scenes, "--config", tmp_path / "run.toml", "--out", tmp_path / "m.mgcap")
    assert "did you mean 'run.toml'" in sentence("train", scenes, "--config", tmp_path / "rum.toml")


def test_all_values_are_listed_with_defaults_and_descriptions() -> None:
    lines = run("config", "list", "--preset", "paper").stdout.splitlines()
    assert lines[0].split() == ["flag", "name", "default", "description"]
    shown = {line.split()[1] for line in lines[1:]}
    assert shown == (set(MGCAPConfig.model_fields) | set(Finetune.model_fields)) - {"preset", "num_classes"}
    (rotations,) = [line for line in lines if line.split()[1] == "rotations"]
    assert rotations.split()[2] == "12" and str(MGCAPConfig.model_fields["rotations"].description) in rotations


def test_help_says_what_the_models_say() -> None:
    text = " ".join(run("train", "--help").stdout.split())
    for name in ("preset", "backbone", "granularities", "rotations", "normalisation"):
        assert str(MGCAPConfig.model_fields[name].description) in text
    fields = {**MGCAPConfig.model_fields, **Finetune.model_fields}
    assert all(field.description for field in fields.values())


def test_values_as_toml() -> None:
    values = {"a": [1.5, 2], "b": True, "c": 'say "é"\n', "d": {"x y": 1e-05}}
    assert tomllib.loads("\n".join(f"{name} = {toml(value)}" for name, value in values.items())) == values
    assert parse_pairs("--set", ["a=[1,2]", "b=x=y"]) == {"a": [1, 2], "b": "x=y"}
    with pytest.raises(DataError, match="--set a: '\\[1' is not a list"):
        parse_pairs("--set", ["a=[1"])


def test_a_file_of_ones_own_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Path] = []
    monkeypatch.setattr(backbones, "add_file", seen.append, raising=False)
    (tmp_path / "mine.py").write_text("")
    run("config", "write", tmp_path / "run.toml", "--add", tmp_path / "mine.py")
    assert seen == [tmp_path / "mine.py"]
    assert tomllib.loads((tmp_path / "run.toml").read_text())["add"] == [str(tmp_path / "mine.py")]
    wrong = sentence("config", "write", tmp_path / "other.toml", "--add", tmp_path / "mime.py")
    assert "did you mean 'mine.py'" in wrong
