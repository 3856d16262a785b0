"""``mgcap map``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli import rasters as r
from mgcap.cli.console import bars, check_writable, data, guarded, show_table
from mgcap.cli.signature import expanded
from mgcap.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from mgcap.geo.shift import Shift

#: What ``--format`` takes.
FORMATS = ("gpkg", "geojson", "parquet")
#: What ``--design`` takes.
DESIGNS = ("auto", "stratified", "random", "other")


@guarded
@expanded
def make_map(
    context: typer.Context,
    rasters: r.Rasters,
    options: r.RasterOptions,
    out: Annotated[
        Path,
        typer.Option(
            help="A .gpkg, .geojson or .parquet file, or for several rasters a folder; the other files go beside it."
        ),
    ] = Path("landuse.gpkg"),
    index: Annotated[
        str | None,
        typer.Option(
            help="Where the index of the raster is or goes, as scene.zarr; or the address of one that is whole, as "
            "s3://maps/scene.zarr; default: beside the map."
        ),
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Look at each tile by itself, without an index; one cell a tile.")
    ] = False,
    overlap: Annotated[
        float,
        typer.Option(help="With --exact: overlap of tiles as a share of their side, as 0.5.", min=0, max=0.9),
    ] = 0.0,
    sieve: Annotated[
        int, typer.Option(help="Merge patches of fewer cells than this into their largest neighbour, as 3.", min=0)
    ] = 0,
    unknown: Annotated[
        float | None,
        typer.Option(
            help="A cell is unknown where it is farther from the training images, or the model less confident, than on "
            "this share of held-out training images; 0: off; default: 0.01, if the model knows.",
            min=0,
            max=0.99,
        ),
    ] = None,
    dissolve: Annotated[
        bool, typer.Option("--dissolve", help="Write cells that touch and show the same as one polygon too.")
    ] = False,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="Format of several maps: gpkg, geojson or parquet.", autocompletion=c.one_of(FORMATS)
        ),
    ] = "gpkg",
    reference: Annotated[
        Path | None,
        typer.Option(help="Points or polygons of what is there, as truth.gpkg, .shp, .geojson, .parquet or .csv."),
    ] = None,
    field: Annotated[str, typer.Option(help="Field of the reference with the class.")] = "class",
    names: Annotated[
        Path | None,
        typer.Option(help="CSV file with the columns reference and map, where classes are called otherwise."),
    ] = None,
    design: Annotated[
        str,
        typer.Option(
            help="How the reference was sampled: stratified (by its field map_class), random, other; auto looks.",
            **c.only(DESIGNS),
        ),
    ] = "auto",
) -> None:
    """Map what rasters show: polygons with class and probability, class raster, picture and areas.

    A run that was killed is resumed when the same command is given again. The index of the raster is kept, so another
    map of it, by another model or with larger cells, takes seconds. With --reference the map is compared with what is
    known of some places: confusion matrix, accuracies and areas, with their intervals, as tables and a page.

    Example: mgcap map scene.tif --out landuse.gpkg --cells 2 --sieve 3
    """
    files = options.files(rasters)
    if form not in FORMATS:
        raise DataError(f"--format takes gpkg, geojson or parquet, not '{form}'{did_you_mean(form, FORMATS)}")
    source = context.get_parameter_source("cells")
    if exact and source is not None and source.name == "COMMANDLINE":
        raise DataError("--cells is for maps without --exact, where --overlap makes cells smaller")
    if index is not None and (exact or overlap):
        raise DataError("--index is for maps without --exact and --overlap")
    if index is not None and len(files) > 1:
        raise DataError(f"--index is for one raster, not for {len(files)}")
    place = index if index is None or "://" in index else Path(index).expanduser()
    if isinstance(place, Path) and not r.is_index(place):
        if place.is_dir():
            raise DataError(f"{place} is not an index but another folder")
        check_writable(place)
    targets = r.targets(files, out, lambda stem: f"{stem}.landuse.{form}")
    if reference is None and names is not None:
        raise DataError("--names is for maps with --reference")
    r.need_geo()
    from mgcap.geo.mapping import map_raster
    from mgcap.geo.plan import MapOptions
    from mgcap.geo.polygons import check_target
    from mgcap.geo.reference import assess, check_reference

    chosen = {**options.values(), "exact": exact, "overlap": overlap, "index": place, "dissolve": dissolve}
    MapOptions(**chosen)
    for target in targets:
        check_target(target)
    classifier = options.classifier()
    if reference is not None:
        check_reference(reference, field, list(map(str, classifier.classes_)), names, design)

    values = {**chosen, "unknown": unknown}
    with options.workers() as workers:

        def work(number: int) -> None:
            file, target = files[number], targets[number]
            done = map_raster(
                classifier, options.model, file, target, workers=workers, sieve=sieve, progress=bars, **values
            )
            grid, cells = done.plan.grid, int(done.found.has_data.sum())
            side = f"{grid.k * grid.cell_width} x {grid.k * grid.cell_height} pixels"
            cut = f"tiles of {side}, {grid.k} x {grid.k} cells each" if grid.k > 1 else f"tiles of {side}"
            bars.say(f"{Path(file).name}: {cut}; {cells} cells with data")
            for path in done.files:
                data.print(str(path), markup=False)
            if done.shift is not None:
                show_shift(done.shift)
            if reference is not None:
                found = assess(target, reference, field, names, design=design, command=o.command_line())
                for path in found.files:
                    data.print(str(path), markup=False)
                show_assessment(found.summary)

        r.each(files, work, "mapped")


def show_shift(shift: Shift) -> None:
    """Print which share of a scene is like the training data, and which cells to label first."""
    data.print(f"\n{shift.sentence}", markup=False)
    if shift.typical:
        data.print("label first, as each stands for many cells that are unknown:", markup=False)
        show_table(shift.columns, [cell.texts() for cell in shift.typical])


def show_assessment(summary: dict[str, Any]) -> None:
    """Print how right a map is."""
    from mgcap.report.assessment import assessment_tables, confusion_table, headline

    data.print("\nconfusion matrix", markup=False)
    show_table(*confusion_table(summary))
    for table in assessment_tables(summary):
        data.print(f"\n{table['title']}", markup=False)
        show_table(table["columns"], table["rows"])
    value, note = headline(summary)
    data.print(f"\n{value} {note}", markup=False)
    for line in summary["notes"]:
        bars.say(line)
