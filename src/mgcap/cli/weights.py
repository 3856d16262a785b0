"""``mgcap weights``."""

from __future__ import annotations

from typing import Annotated

import typer

from mgcap.cli.console import bars, data, guarded, words

app = typer.Typer(help="ImageNet weights of the backbones.", no_args_is_help=True)


@app.command("list")
@guarded
def list_weights() -> None:
    """Say which weights there are, which are here, and where they come from.

    Example: mgcap weights list
    """
    from rich.table import Table

    from mgcap.backbones import backbone_spec
    from mgcap.weights import SOURCES, is_cached

    table = Table("backbone", "what it is", "here", "from")
    for name, (_, attempts) in SOURCES.items():
        table.add_row(
            name,
            backbone_spec(name).summary,
            "yes" if is_cached(name) else "no",
            "; ".join(str(s) for s, _ in attempts) or "no pinned download; give a file with --weights FILE",
        )
    data.print(table)


@app.command("fetch")
@guarded
def fetch(
    names: Annotated[list[str] | None, typer.Argument(help="Backbones; default: resnet50-v1.")] = None,
) -> None:
    """Fetch weights, check their hash and keep them, so that later commands need no network.

    Example: mgcap weights fetch resnet50-v1 vgg16 alexnet
    """
    from mgcap.weights import cached_path, load_weights

    for name in names or ["resnet50-v1"]:
        weights = load_weights(name, bars.say)
        words.print(f"{name}: {cached_path(name)} (sha256 of the tensors {weights.sha256[:16]}..., {weights.source})")
