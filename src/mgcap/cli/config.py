"""``mgcap config``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import check_writable, guarded, show_table
from mgcap.cli.settings import ELSEWHERE, save_options, toml
from mgcap.cli.signature import expanded, given
from mgcap.errors import DataError

app = typer.Typer(
    help="Every value of a model and of fine-tuning, and files for --config.",
    epilog="Example: mgcap config write run.toml --preset paper",
    no_args_is_help=True,
)


@app.command("list")
@guarded
def list_values(preset: o.Preset = "compact") -> None:
    """List all values for --set and --tune, and for [model] and [finetune] of a file, with defaults and descriptions.

    Example: mgcap config list --preset paper
    """
    from mgcap.config import MGCAPConfig
    from mgcap.training.recipe import Finetune

    models: list[tuple[str, Any]] = [
        ("--set", MGCAPConfig(preset=preset)),  # type: ignore[arg-type]
        ("--tune", Finetune()),
    ]
    show_table(
        ("flag", "name", "default", "description"),
        [
            (flag, name, "" if (value := getattr(model, name)) is None else toml(value).strip('"'), field.description)
            for flag, model in models
            for name, field in type(model).model_fields.items()
            if name not in ELSEWHERE
        ],
    )


@app.command("write")
@guarded
@expanded
def write(
    file: Annotated[Path, typer.Argument(help="The TOML file to write.")],
    options: o.TrainingOptions,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write the options of training to a file for --config; what a command has no use for, it skips.

    Every command with options to keep writes its own by --save-config.

    Example: mgcap config write run.toml --preset paper --rotations 4 --finetune --tune epochs=5
    """
    if file.expanduser().exists() and not force:
        raise DataError(f"{file} is there already; give another name, or --force to write over it")
    save_options(check_writable(file), given(options), options)
