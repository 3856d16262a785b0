"""The command line: one file per command, no logic here."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mgcap.cli import (
    ablate,
    bench,
    cache,
    compare,
    config,
    datasets,
    demo,
    doctor,
    evaluate,
    explain,
    export,
    index,
    label,
    mapping,
    predict,
    presets,
    search,
    serve,
    train,
    weights,
)
from mgcap.cli.console import Command, set_debug

app = typer.Typer(
    name="mgcap",
    help="Classify remote sensing scenes by multi-granularity canonical appearance pooling (MG-CAP).",
    epilog="Example: mgcap datasets synthetic scenes/ && mgcap train scenes/ --out model.mgcap && "
    "mgcap predict scenes/ --model model.mgcap. Add --debug to any command for a traceback.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("train", cls=Command)(train.train)
app.command("evaluate", cls=Command)(evaluate.evaluate)
app.command("ablate", cls=Command)(ablate.ablate)
app.command("compare")(compare.compare)
app.command("predict")(predict.predict)
app.command("explain")(explain.explain)
app.command("index")(index.index)
app.command("map")(mapping.make_map)
app.command("label")(label.label)
app.command("search")(search.search)
app.command("serve")(serve.serve)
app.command("export")(export.export)
app.command("presets")(presets.presets)
app.command("doctor")(doctor.doctor)
app.add_typer(bench.app, name="bench")
app.add_typer(cache.app, name="cache")
app.add_typer(config.app, name="config")
app.add_typer(datasets.app, name="datasets")
app.add_typer(weights.app, name="weights")


def _version(value: bool) -> None:
    if value:
        from mgcap import __version__

        typer.echo(f"mgcap {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; may stand anywhere on the line.")] = False,
) -> None:
    set_debug(debug)


def main() -> None:
    """Entry point of ``mgcap`` and ``python -m mgcap``."""
    if "--debug" in sys.argv[1:]:
        arguments = [a for a in sys.argv[1:] if a != "--debug"]
        app(["--debug", *arguments])
    else:
        app()
