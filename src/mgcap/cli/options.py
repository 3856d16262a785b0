"""Options that several commands take."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli.console import bars, config_sentence, parse_settings, words
from mgcap.errors import DataError
from mgcap.persistence import files

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.data.folders import SceneFolder
    from mgcap.data.splits import Split
    from mgcap.training.recipe import Finetune

Preset = Annotated[str, typer.Option(help="compact, paper or authors-code.")]
Backbone = Annotated[str | None, typer.Option(help="vgg16, vgg19, alexnet, resnet18/34/50, resnet50-v1 or timm:NAME.")]
Granularities = Annotated[str | None, typer.Option(help="Crop ratios, as 1.0,0.9,0.8.")]
Rotations = Annotated[int | None, typer.Option(help="Number of rotations.")]
Normalisation = Annotated[str | None, typer.Option(help="sqrt, log or bilinear.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Any other configuration value, as NAME=VALUE.")]
Weights = Annotated[str, typer.Option(help="imagenet, or a file with the backbone's weights.")]
Descriptor = Annotated[
    str, typer.Option(help="universal (axes that ship with mgcap) or own (fitted to the training images).")
]
Engine = Annotated[str, typer.Option(help="auto, torch, torch-compile, openvino (int8) or openvino-fp32.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, ...")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Cache = Annotated[bool, typer.Option(help="Keep features on disk for later runs; see mgcap cache.")]
Regularisation = Annotated[str, typer.Option(help="A number, or auto for cross-validation.")]
Json = Annotated[str | None, typer.Option("--json", help="Write one JSON object to a file, or - .")]
Splits = Annotated[list[Path] | None, typer.Option(help="Split files to use instead of seeded ones; may be repeated.")]
Finetuned = Annotated[bool, typer.Option("--finetune", help="Train the backbone too, in every run.")]
Tune = Annotated[list[str] | None, typer.Option(help="How to fine-tune, as epochs=4; see docs/finetune.md.")]
Model = Annotated[Path, typer.Option(help="A model that train wrote, or ucmerced, which comes with the package.")]
Resolution = Annotated[float | None, typer.Option(help="Metres per pixel of the images; maps need it.", min=1e-6)]
Data = Annotated[Path, typer.Argument(help="A folder with one subfolder per class.")]


def configuration(
    backbone: str | None,
    granularities: str | None,
    rotations: int | None,
    normalisation: str | None,
    settings: list[str] | None,
) -> dict[str, Any]:
    """The configuration values that were given on the command line."""
    values: dict[str, Any] = dict(parse_settings(settings or []))
    if granularities is not None:
        try:
            values["granularities"] = tuple(float(part) for part in granularities.replace("+", ",").split(","))
        except ValueError:
            raise DataError(f"--granularities takes numbers such as 1.0,0.9,0.8, not '{granularities}'") from None
    given = {"backbone": backbone, "rotations": rotations, "normalisation": normalisation}
    return {**values, **{name: value for name, value in given.items() if value is not None}}


def classifier(context: typer.Context) -> SceneClassifier:
    """The classifier that the options of a command describe."""
    from mgcap.classifier import SceneClassifier
    from mgcap.config import MGCAPConfig

    given = context.params
    names = ("backbone", "granularities", "rotations", "normalisation", "settings")
    values = configuration(*(given[name] for name in names))
    MGCAPConfig(preset=given["preset"], **values)  # its errors speak of the configuration
    return SceneClassifier(
        given["preset"],
        weights=given["weights"],
        descriptor=given["descriptor"],
        engine=given["engine"],
        device=given["device"],
        regularisation=strength(given["regularisation"]),
        seed=given["seed"],
        cache=given.get("cache", True),
        resolution=given.get("resolution"),
        progress=bars,
        **values,
    )


def command_line() -> str:
    """The command as it was typed, for reports."""
    return shlex.join(["mgcap", *sys.argv[1:]])


def strength(regularisation: str) -> float | str:
    """What ``--regularisation`` means."""
    if regularisation == "auto":
        return regularisation
    try:
        return float(regularisation)
    except ValueError:
        raise DataError(f"--regularisation takes a number or auto, not '{regularisation}'") from None


def write_json(target: str | None, report: dict[str, Any]) -> None:
    """What ``--json`` means: a file, or - for standard output."""
    if target == "-":
        typer.echo(json.dumps(report, indent=1))
    elif target:
        files.write_json(Path(target), report)
        words.print(f"report: {target}")


def make_splits(folder: SceneFolder, files: list[Path] | None, part: float | int, runs: int, seed: int) -> list[Split]:
    """The splits that were given as files, or seeded ones."""
    from mgcap.data.folders import content_hashes
    from mgcap.data.splits import make_split, read_split

    if files:
        return [read_split(file, folder) for file in files]
    with bars("Looking for copies", len(folder)) as step:
        marks = content_hashes(folder.paths, lambda: step(1))
    return [make_split(folder.targets, part, seed + run, marks, folder.classes) for run in range(runs)]


def recipe(given: dict[str, Any]) -> Finetune | None:
    """What fine-tuning was asked for; None if none was."""
    from pydantic import ValidationError

    from mgcap.training.recipe import Finetune

    values: dict[str, Any] = {name: given[name] for name in Finetune.model_fields if given.get(name) is not None}
    values |= parse_settings(given["tune"] or [])
    if not given["finetune"]:
        if values or given.get("resume"):
            name = next(iter(values), "resume").replace("_", "-")
            raise DataError(f"--{name} needs --finetune")
        return None
    weights = values.get("class_weights")
    if isinstance(weights, str) and weights not in ("none", "auto"):
        values["class_weights"] = _read_weights(Path(weights))
    try:
        return Finetune.model_validate(values)
    except ValidationError as error:
        raise DataError(config_sentence(error, Finetune.model_fields)) from error


def _read_weights(path: Path) -> dict[str, str]:
    """Class weights from a file: JSON, or CSV with the columns class and weight."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--class-weights takes none, auto or a file; {path} cannot be read") from error
    try:
        if path.suffix == ".json":
            return {str(name): value for name, value in json.loads(text).items()}
        return {row["class"]: row["weight"] for row in csv.DictReader(text.splitlines())}
    except (ValueError, KeyError, AttributeError) as error:
        raise DataError(f"{path} must have the columns class and weight") from error
