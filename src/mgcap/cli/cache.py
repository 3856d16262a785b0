"""``mgcap cache``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from mgcap.cli.console import guarded, show_table, words
from mgcap.errors import DataError

if TYPE_CHECKING:
    from mgcap.persistence.cache import StoreInfo

app = typer.Typer(
    help="Features on disk, which later runs need not compute again.",
    epilog="Example: mgcap cache info",
    no_args_is_help=True,
)


@app.command("info")
@guarded
def info() -> None:
    """Say what is kept, and where.

    Example: mgcap cache info
    """
    from mgcap.persistence.cache import FeatureCache

    cache = FeatureCache()
    stores = cache.info()
    if stores:
        columns = ("features", "network", "crop", "rotations", "what", "engine", "images", "MiB", "last used")
        show_table(columns, [_cells(store) for store in stores])
    words.print(f"{sum(store.bytes for store in stores) / 2**20:.1f} MiB in {cache.root}", markup=False)


@app.command("prune")
@guarded
def prune(
    everything: Annotated[bool, typer.Option("--all", help="Remove all features.")] = False,
    older_than: Annotated[
        float | None, typer.Option(min=0, help="Remove what was not used for this number of days, as 30.")
    ] = None,
    keep_gib: Annotated[
        float | None,
        typer.Option(min=0, help="Remove the longest unused until at most this number of GiB is left, as 5."),
    ] = None,
) -> None:
    """Remove features; models, weights and data are not touched.

    Example: mgcap cache prune --keep-gib 5
    """
    from mgcap.persistence.cache import FeatureCache

    if not everything and older_than is None and keep_gib is None:
        raise DataError("say what to remove: --all, --older-than DAYS or --keep-gib GIB")
    cache = FeatureCache()
    if everything:
        gone = cache.prune()
    else:
        keep = None if keep_gib is None else int(keep_gib * 2**30)
        gone = cache.prune(older_than or 0.0, keep)
    size = sum(store.bytes for store in gone) / 2**20
    words.print(f"removed {len(gone)} kinds of features, {size:.1f} MiB, from {cache.root}", markup=False)


def _cells(store: StoreInfo) -> tuple[str, ...]:
    r = store.recipe
    reduced = f"{r['reduction']} {r['channels']}" if r.get("channels") else "all channels"
    return (
        store.folder.name[:8],
        f"{r.get('backbone', '-')} {r.get('layer', r.get('before', ''))}".strip(),
        f"{r['crop']:g}" if "crop" in r else "-",
        str(r.get("rotations", "-")),
        f"{r['embedding']}, {reduced}" if "embedding" in r else str(r.get("kind", "-")),
        str(r.get("engine", "-")).split()[0],
        str(store.images),
        f"{store.bytes / 2**20:.1f}",
        _ago(store),
    )


def _ago(store: StoreInfo) -> str:
    hours = (time.time() - store.used) / 3600
    return f"{hours:.0f} hours ago" if hours < 48 else f"{hours / 24:.0f} days ago"
