"""``mgcap train`` with labels on rasters, and with classes that are added to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli import rasters as r
from mgcap.cli.console import bars, check_writable, show_table
from mgcap.cli.saving import save_model
from mgcap.errors import DataError
from mgcap.persistence.shipped import DEFAULT_MODEL

if TYPE_CHECKING:
    from mgcap.labelling.growing import Grown
    from mgcap.labelling.rasters import Drawn
    from mgcap.labelling.teaching import Taught


@dataclass(frozen=True)
class LabelOptions:
    """Labels on rasters, and how a model is taught by them."""

    labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="Points, lines or polygons with classes, on the rasters that are given in place of a folder: .gpkg, "
            ".shp, .geojson, .parquet or .csv; may be repeated."
        ),
    ] = None
    field: Annotated[str, typer.Option(help="Field of the labels with the class.")] = "class"
    layer: Annotated[
        str | None,
        typer.Option(help="With --labels: the layer of a GeoPackage, if several have the field.", show_default=False),
    ] = None
    base: Annotated[
        Path,
        typer.Option(
            help="With --labels: the model whose network describes the rasters; its classes do not count.",
            autocompletion=c.models,
        ),
    ] = DEFAULT_MODEL
    block: Annotated[
        str | None,
        typer.Option(
            help="With --labels: side of the blocks of land that are held out together to measure the accuracy, as "
            "500m; default: four tiles."
        ),
    ] = None
    index: Annotated[
        list[Path] | None,
        typer.Option(
            help="With --labels: index of each raster, in their order; default: beside the model, as scene.zarr, made "
            "if need be."
        ),
    ] = None
    tile: r.Tile = None
    cells: r.Cells = 4
    bands: r.Bands = None
    scale: r.Scale = "auto"
    min_valid: r.MinValid = 0.5
    cluster: r.Cluster = None
    allow_vrt: r.AllowVrt = False
    keep_descriptors: Annotated[
        bool,
        typer.Option(
            help="Let the model carry the descriptors that it was taught by (about 1 KB each, no images), so that "
            "classes can be added to it later."
        ),
    ] = True
    extend: Annotated[
        Path | None,
        typer.Option(help="Add to a model what --labels say, and change its classes, without its training images."),
    ] = None
    rename: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="With --extend: give a class another name; may be repeated."),
    ] = None
    merge: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B=NEW", help="With --extend: make one class of several; may be repeated."),
    ] = None
    remove: Annotated[
        list[str] | None, typer.Option(metavar="CLASS", help="With --extend: forget a class; may be repeated.")
    ] = None

    @property
    def wanted(self) -> bool:
        """Whether a model is taught by labels on rasters, or by the examples of another."""
        return bool(self.labels) or self.extend is not None

    def raster_values(self) -> dict[str, Any]:
        """Of :class:`mgcap.geo.plan.MapOptions`."""
        return r.RasterOptions(
            cells=self.cells,
            tile=self.tile,
            bands=self.bands,
            scale=self.scale,
            min_valid=self.min_valid,
            allow_vrt=self.allow_vrt,
        ).values()


def check_alone(options: LabelOptions) -> None:
    """See that options for labels were given with them only."""
    changes = options.rename or options.merge or options.remove
    if changes and options.extend is None:
        raise DataError("--rename, --merge and --remove are for --extend MODEL")
    plain = LabelOptions()
    if options.extend is not None and options.base != plain.base:
        raise DataError("--base is for new models; --extend takes the network of its own MODEL")
    if options.labels:
        return
    names = "field layer base block index tile cells bands scale min_valid cluster allow_vrt"
    for name in names.split():
        if getattr(options, name) != getattr(plain, name):
            raise DataError(f"--{name.replace('_', '-')} is for rasters with --labels")


def teach_model(rasters: Sequence[Path], options: LabelOptions, out: Path, device: str, engine: str) -> None:
    """Teach a model by labels on rasters, or more to one that is there."""
    r.need_geo()
    from mgcap.classifier import SceneClassifier
    from mgcap.labelling.growing import grow
    from mgcap.labelling.rasters import block_side, draw_examples, parse_block, teach_drawn

    out = check_writable(out)
    if options.labels and not rasters:
        raise DataError("give the rasters that the labels lie on: mgcap train scene.tif --labels labels.gpkg")
    if rasters and not options.labels:
        raise DataError("give the labels of these rasters with --labels")
    changes: dict[str, Any] = {
        "rename": _renamed(options.rename or ()),
        "merge": _merged(options.merge or ()),
        "remove": options.remove or [],
    }
    if options.extend is not None and not options.labels and not any(changes.values()):
        raise DataError("--extend needs --labels, --rename, --merge or --remove")
    if options.block is not None:
        parse_block(options.block)
    base = SceneClassifier.load(options.extend or options.base, device=device, engine=engine, progress=bars)
    drawn: Drawn | None = None
    if options.labels:
        files = r.RasterOptions(allow_vrt=options.allow_vrt).files([str(path) for path in rasters])
        labels = [_read(path, options) for path in options.labels]
        workers = r.RasterOptions(cluster=options.cluster).workers()
        with workers as computing:
            drawn = draw_examples(
                files, labels, options.field, base=base, folder=out.parent, workers=computing, progress=bars,
                index=[path.expanduser() for path in options.index or ()], **options.raster_values(),
            )  # fmt: skip
        show_labels(drawn)
    if options.extend is not None:
        side = None if drawn is None or options.block is None else block_side(drawn.indexes, options.block)
        grown = grow(base, drawn, **changes, block=side, keep=options.keep_descriptors)
        taught = grown.taught
        show_growth(grown)
    else:
        assert drawn is not None
        taught = teach_drawn(base, drawn, options.block, options.keep_descriptors)
    show_taught(taught, _unit(drawn, taught))
    _save(taught, out)


def _read(path: Path, options: LabelOptions) -> Any:
    from mgcap.geo.vectors import read_vectors

    return read_vectors(path, [options.field], layer=options.layer)


def _renamed(texts: Sequence[str]) -> dict[str, str]:
    """New names by old ones."""
    found: dict[str, str] = {}
    for old, new in (_pair("--rename", text) for text in texts):
        if found.setdefault(old, new) != new:
            raise DataError(f"--rename gives the class '{old}' two names, '{found[old]}' and '{new}'")
    return found


def _merged(texts: Sequence[str]) -> dict[str, list[str]]:
    """Classes by the name that they get together."""
    found: dict[str, list[str]] = {}
    for old, new in (_pair("--merge", text) for text in texts):
        found.setdefault(new, []).extend(part.strip() for part in old.split(","))
    return found


def _pair(flag: str, text: str) -> tuple[str, str]:
    old, found, new = text.rpartition("=")
    if not found or not old.strip() or not new.strip():
        raise DataError(f"{flag} takes OLD=NEW, not '{text}'")
    return old.strip(), new.strip()


def _unit(drawn: Drawn | None, taught: Taught) -> str:
    card = taught.classifier.provenance_["taught"]
    return str(card.get("unit", "")) if drawn is None else drawn.unit


def _save(taught: Taught, out: Path) -> None:
    examples = taught.classifier.examples_
    if examples is not None:
        bars.say(f"{examples.bytes / 1e6:.2f} MB of the model are the descriptors of {len(examples)} labels")
    save_model(taught.classifier, out)


def show_labels(drawn: Drawn) -> None:
    """Say what has a label, and what was left out."""
    for name, own in zip(drawn.rasters, drawn.labelled, strict=True):
        bars.say(f"{name}: {len(own.cells)} cells have a label")
    where = f"{drawn.rasters[0]}: " if len(drawn.rasters) == 1 else ""
    for why, count in drawn.left_out.items():
        bars.say(f"{where}left out: {count} {why}")


def show_taught(taught: Taught, unit: str) -> None:
    """Print how right a model is, by class and in all."""
    rows = []
    for name, (count, found) in taught.by_class.items():
        said = "not known" if found is None else _interval(found)
        rows.append((name, str(count), said))
    show_table(("class", "labels", "accuracy where its blocks are held out"), rows)
    if taught.estimate is None:
        bars.say(
            "the labels are too few, or lie in one block, so nothing can be said of the accuracy; label more places"
        )
        return
    side = f"{taught.block:.4g} {unit}".strip()
    bars.say(f"accuracy where blocks of {side} are held out: {_interval(taught.estimate)}")
    if taught.random is not None:
        bars.say(
            f"accuracy where labels are held out at random: {_interval(taught.random)}; neighbouring cells are alike, "
            "so do not report this one"
        )


def show_growth(grown: Grown) -> None:
    """Say what became of a model that was taught more; shares are of labels whose blocks were held out."""
    for what, names in (("new", grown.added), ("gone", grown.gone)):
        if names:
            bars.say(f"{what}: {', '.join(names)}")
    for why, count in grown.left_out.items():
        bars.say(f"left out: {count} {why}")
    rows = []
    for name, own in grown.changes.items():
        shares = ["not known" if share is None else _interval(share) for share in (own.before, own.now)]
        rows.append((name, str(own.labels_before), str(own.labels_now), *shares))
    show_table(("class", "labels before", "labels now", "right before", "right now"), rows)
    if grown.before is not None and grown.after is not None:
        bars.say(
            f"accuracy on the new labels: {_interval(grown.before)} before, {_interval(grown.after)} now, while their "
            "blocks are held out"
        )


def _interval(found: Any) -> str:
    return f"{100 * found.value:.1f} % ({100 * found.low:.1f} to {100 * found.high:.1f} %)"
