"""Options that several commands take, each defined once.

A command takes a group of them as one parameter of a dataclass below; :func:`mgcap.cli.signature.expanded` makes
options of its fields. What a model value means stands in :mod:`mgcap.descriptions`, which the models use too.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli.console import bars, words
from mgcap.cli.settings import (
    ELSEWHERE,
    IN_TABLES,
    ConfigFile,
    apply_file,
    parse_pairs,
    read_class_weights,
    read_config,
)
from mgcap.descriptions import FINETUNE, MODEL, values_checked
from mgcap.errors import DataError, missing
from mgcap.persistence import files

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier
    from mgcap.config import MGCAPConfig
    from mgcap.data.folders import SceneFolder
    from mgcap.data.splits import Split
    from mgcap.training.recipe import Finetune

Preset = Annotated[str, typer.Option(help=MODEL["preset"], **c.only(c.PRESETS))]
Backbone = Annotated[str | None, typer.Option(help=MODEL["backbone"], autocompletion=c.one_of(c.BACKBONES))]
Granularities = Annotated[str | None, typer.Option(help=MODEL["granularities"])]
Rotations = Annotated[int | None, typer.Option(help=MODEL["rotations"])]
Normalisation = Annotated[
    str | None, typer.Option(help=MODEL["normalisation"], autocompletion=c.one_of(c.NORMALISATIONS))
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other value of the model, as --set channels=64; may be repeated. mgcap config list shows them all.",
        autocompletion=c.assigned(MODEL, (*ELSEWHERE, *IN_TABLES)),
    ),
]
Add = Annotated[
    list[Path] | None,
    typer.Option(help="Your Python file with backbones, pooling rules or spectral functions; it is run. Repeatable."),
]
FromFile = Annotated[
    ConfigFile | None,
    typer.Option(
        "--config",
        metavar="FILE",
        parser=read_config,
        callback=apply_file,
        is_eager=True,
        help="Take options from a TOML file, as --config run.toml; those on the command line go before.",
    ),
]
ToFile = Annotated[
    Path | None,
    typer.Option("--save-config", help="Write all options of this command to a TOML file for --config, as run.toml."),
]
Weights = Annotated[
    str,
    typer.Option(
        help="Weights of the backbone: imagenet, random, or a file, as --weights resnet50.safetensors.",
        autocompletion=c.one_of(("imagenet", "random"), c.WEIGHTS),
    ),
]
Descriptor = Annotated[
    str,
    typer.Option(
        help="Axes of the descriptor: universal (they ship with mgcap) or own (of the training images).",
        **c.only(c.DESCRIPTORS),
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help="Engine for the backbone: auto, torch, torch-compile, openvino (int8) or openvino-fp32.",
        **c.only(c.ENGINES),
    ),
]
Device = Annotated[
    str,
    typer.Option(help="Device to compute on: auto, cpu, cuda, cuda:1, ...", autocompletion=c.one_of(c.DEVICES)),
]
Seed = Annotated[int, typer.Option(help="Seed of everything random.")]
Cache = Annotated[bool, typer.Option(help="Keep features on disk for later runs; see mgcap cache.")]
Regularisation = Annotated[
    str,
    typer.Option(
        help="Strength of the head's L2 term, as 0.01, or auto for cross-validation.",
        autocompletion=c.one_of(["auto"]),
    ),
]
Json = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Write the results as JSON to a file, or to standard output with -."),
]
TrainRatio = Annotated[float, typer.Option(help="Share of each class to train on, as 0.8; the rest is for the test.")]
Runs = Annotated[int, typer.Option(min=1, max=1000, help="Number of seeded splits.")]
Splits = Annotated[
    list[Path] | None,
    typer.Option(help="A split file (CSV with path, label, subset) instead of seeded splits; may be repeated."),
]
Finetuned = Annotated[
    bool | None, typer.Option("--finetune/--no-finetune", help="Train the backbone too, not the head alone.")
]
Tune = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="How to fine-tune, as --tune epochs=4; may be repeated. mgcap config list shows all values.",
        autocompletion=c.assigned(FINETUNE),
    ),
]
Model = Annotated[
    Path,
    typer.Option(
        help="A model that mgcap train wrote, as model.mgcap, or ucmerced, which comes with the package.",
        autocompletion=c.models,
    ),
]
Unknown = Annotated[
    float,
    typer.Option(
        help="Answer unknown where an image is farther from the training images, or the model less confident, than on "
        "this share of held-out training images, as 0.01; 0: off.",
        min=0,
        max=0.99,
    ),
]
Resolution = Annotated[
    float | None, typer.Option(help="Metres per pixel of the images, as 0.3; maps need it.", min=1e-6)
]
DATA = "A folder with one subfolder per class, or of files as forest_001.tif; a .zip of either; or a CSV of path,label."
Data = Annotated[Path, typer.Argument(help=DATA)]


@dataclass(frozen=True)
class FileOptions:
    """Options about options; :func:`mgcap.cli.signature.expanded` gives them to every command."""

    from_file: FromFile = None
    to_file: ToFile = None


@dataclass(frozen=True)
class ModelOptions(FileOptions):
    """Options that describe a model."""

    preset: Preset = "compact"
    backbone: Backbone = None
    granularities: Granularities = None
    rotations: Rotations = None
    normalisation: Normalisation = None
    settings: Settings = None
    add: Add = None

    def values(self) -> dict[str, Any]:
        """The model values that were given: by flags or --set, and by the file of --config where neither has one."""
        own = {name: getattr(self, name) for name in ("backbone", "granularities", "rotations", "normalisation")}
        flags = {name: value for name, value in own.items() if value is not None}
        pairs = parse_pairs("--set", self.settings)
        for name in pairs.keys() & {"preset", *flags}:
            raise DataError(f"--{name} and --set {name}= are the same; give --{name} alone")
        if self.granularities is not None:
            try:
                flags["granularities"] = tuple(float(p) for p in self.granularities.replace("+", ",").split(","))
            except ValueError:
                raise DataError(
                    f"--granularities takes numbers such as 1.0,0.9,0.8, not '{self.granularities}'"
                ) from None
        return {**(self.from_file.model if self.from_file else {}), **pairs, **flags}

    def config(self) -> MGCAPConfig:
        """The configuration that is meant."""
        run_added(self.add)
        from mgcap.config import MGCAPConfig

        return MGCAPConfig(**{"preset": self.preset, **self.values()})


@dataclass(frozen=True)
class TrainingOptions(ModelOptions):
    """Options that describe a model and how it is trained."""

    weights: Weights = "imagenet"
    descriptor: Descriptor = "universal"
    regularisation: Regularisation = "auto"
    seed: Seed = 0
    engine: Engine = "auto"
    device: Device = "auto"
    cache: Cache = True
    finetune: Finetuned = None
    tune: Tune = None

    def classifier(self, **more: Any) -> SceneClassifier:
        """The classifier that is meant, with fine-tuning if that was asked for."""
        recipe = self.recipe()
        config = self.config()  # its errors speak of the configuration
        from mgcap.classifier import SceneClassifier

        return SceneClassifier(
            config.preset,
            weights=self.weights,
            descriptor=self.descriptor,
            engine=self.engine,
            device=self.device,
            regularisation=strength(self.regularisation),
            seed=self.seed,
            cache=self.cache,
            finetune=recipe,
            progress=bars,
            **{name: getattr(config, name) for name in self.values()},
            **more,
        )

    def recipe(self) -> Finetune | None:
        """How to fine-tune; None if the backbone stays as it is."""
        in_file = self.from_file.finetune if self.from_file else None
        if not (in_file is not None if self.finetune is None else self.finetune):
            if self.tune:
                raise DataError("--tune needs --finetune")
            return None
        from mgcap.training.recipe import Finetune

        values: dict[str, Any] = {**(in_file or {}), **parse_pairs("--tune", self.tune)}
        weights = values.get("class_weights")
        if isinstance(weights, str) and weights not in ("none", "auto"):
            values["class_weights"] = read_class_weights(Path(weights))
        with values_checked("--tune: ", Finetune.model_fields):
            return Finetune.model_validate(values)


def run_added(files: list[Path] | None) -> None:
    """Let the user's files register what is theirs."""
    if not files:
        return
    from mgcap.backbones import add_file

    for path in files:
        if not path.expanduser().is_file():
            raise DataError(f"--add: {missing('file', path)}")
        add_file(path.expanduser())


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
        words.print(f"report: {target}", markup=False)


def make_splits(folder: SceneFolder, given: list[Path] | None, part: float | int, runs: int, seed: int) -> list[Split]:
    """The splits that were given as files, or seeded ones."""
    from mgcap.data.folders import content_hashes
    from mgcap.data.splits import make_split, read_split

    if given:
        return [read_split(file, folder) for file in given]
    with bars("Looking for duplicates", len(folder)) as step:
        hashes = content_hashes(folder.paths, lambda: step(1))
    return [make_split(folder.targets, part, seed + run, hashes, folder.classes) for run in range(runs)]
