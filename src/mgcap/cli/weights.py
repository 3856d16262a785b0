"""``mgcap weights``."""

from __future__ import annotations

from typing import Annotated

import typer

from mgcap.cli import completion as c
from mgcap.cli.console import bars, guarded, show_table, words

app = typer.Typer(help="ImageNet weights of the backbones.", epilog="Example: mgcap weights list", no_args_is_help=True)


@app.command("list")
@guarded
def list_weights() -> None:
    """Say which weights there are, which are here, and where they come from.

    Example: mgcap weights list
    """
    from mgcap.backbones import BACKBONES, load_entry_points
    from mgcap.backbones.pretrained import is_cached

    for failure in load_entry_points():
        words.print(failure, markup=False)
    rows = []
    for name, record in BACKBONES.items():
        if record.weights is not None:
            here = "yes" if is_cached(name) else "no"
            sources = "; ".join(str(source) for source, _ in record.weights.sources)
            rows.append((name, record.summary, here, sources, record.weights.licence))
    show_table(("backbone", "what it is", "here", "from", "licence"), rows)


@app.command("fetch")
@guarded
def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Names of backbones, as vgg16; default: resnet50-v1.", autocompletion=c.one_of(c.BACKBONES)
        ),
    ] = None,
) -> None:
    """Fetch weights, check their hash and keep them, so that later commands need no network.

    Names are those of "mgcap weights list"; hf:NAME and timm:NAME are loaded, and kept, by transformers and timm.

    Example: mgcap weights fetch resnet50-v1 vgg16 alexnet
    """
    from mgcap.backbones import BACKBONES
    from mgcap.backbones.pretrained import cached_path, load_weights

    for name in names or ["resnet50-v1"]:
        weights = load_weights(name, bars.say)
        place = cached_path(name) if name in BACKBONES else "loaded"
        words.print(f"{name}: {place} (sha256 of the tensors {weights.sha256[:16]}..., {weights.source})", markup=False)
