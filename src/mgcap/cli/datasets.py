"""``mgcap datasets``."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Annotated

import typer

from mgcap.cli import options as o
from mgcap.cli.console import bars, check_writable, data, guarded, show_table, words
from mgcap.cli.tiles import tiles
from mgcap.errors import DataError, ImageError

app = typer.Typer(
    help="Public datasets, checks of a folder, synthetic scenes, tiles and points of rasters.",
    epilog="Example: mgcap datasets synthetic scenes/",
    no_args_is_help=True,
)


@app.command("list")
@guarded
def list_datasets() -> None:
    """List the datasets that are known by name, with licence and where to get them.

    Example: mgcap datasets list
    """
    from mgcap.data.catalogue import CATALOGUE

    show_table(
        ("key", "dataset", "classes", "images", "pixels", "m/pixel", "licence", "where"),
        [
            (d.key, d.title, len(d.counts), d.total, d.pixels, d.resolution, d.licence, d.home)
            for d in CATALOGUE.values()
        ],
    )
    words.print("Unzip a dataset anywhere and give its folder to the other commands; the layout is detected.")


@app.command("check")
@guarded
def check(path: o.Data) -> None:
    """Look at every image of a folder: layout, counts against the catalogue, unreadable files, duplicates.

    The exit code is 1 if anything is wrong.

    Example: mgcap datasets check UCMerced_LandUse/
    """
    from mgcap.data.catalogue import differences, recognise
    from mgcap.data.folders import content_hashes, open_folder
    from mgcap.data.images import read_image

    folder = open_folder(path, progress=bars)
    known = recognise(folder.classes)
    data.print(f"{folder.root}: {len(folder)} images of {len(folder.classes)} classes", markup=False)
    data.print(f"dataset: {known.title if known else 'none of the catalogue'}")
    problems = differences(known, folder.counts) if known else []
    with bars("Reading every image", len(folder)) as step:
        fingerprints = content_hashes(folder.paths, lambda: step(1))
    duplicates: dict[str, list[int]] = defaultdict(list)
    for index, fingerprint in enumerate(fingerprints):
        if fingerprint is None:
            try:
                read_image(folder.paths[index])
            except ImageError as error:
                problems.append(str(error))
        else:
            duplicates[fingerprint].append(index)
    notes: list[str] = []
    for twins in duplicates.values():
        if len(twins) > 1:
            names = ", ".join(folder.relative(folder.paths[i]) for i in twins)
            labels = {folder.targets[i] for i in twins}
            target = notes if len(labels) == 1 else problems
            target.append(f"the same picture{'' if len(labels) == 1 else ' in different classes'}: {names}")
    sizes = Counter(_size(p) for p, fingerprint in zip(folder.paths, fingerprints, strict=True) if fingerprint)
    data.print("sizes: " + ", ".join(f"{w} x {h} ({n})" for (w, h), n in sizes.most_common(5)))
    low = min(folder.counts.items(), key=lambda item: item[1])
    high = max(folder.counts.items(), key=lambda item: item[1])
    data.print(f"images per class: {low[1]} ({low[0]}) to {high[1]} ({high[0]})", markup=False)
    if notes or problems:
        found = (("note", notes), ("problem", problems))
        show_table(("kind", "what was found"), [(kind, line) for kind, lines in found for line in lines])
    data.print("all is well" if not problems else f"{len(problems)} problems")
    if problems:
        raise SystemExit(1)


def _size(path: Path) -> tuple[int, int]:
    from PIL import Image

    from mgcap.data.decoding import OPENED
    from mgcap.data.images import read_image

    try:
        with Image.open(path, formats=OPENED) as image:
            return image.size
    except (OSError, ValueError):
        tensor = read_image(path)
        return tensor.shape[2], tensor.shape[1]


@app.command("synthetic")
@guarded
def synthetic(
    out: Annotated[Path, typer.Argument(help="The folder to write to.")],
    per_class: Annotated[int, typer.Option(help="Number of scenes to draw of each class.")] = 40,
    size: Annotated[int, typer.Option(help="Side of a scene in pixels.")] = 256,
    seed: o.Seed = 0,
) -> None:
    """Draw aerial-looking scenes of 19 classes, the same for the same seed.

    Example: mgcap datasets synthetic scenes/ --per-class 40 --size 256
    """
    from mgcap.data.synthetic import CLASSES, write_scenes

    with bars("Drawing scenes", per_class * len(CLASSES)) as step:
        written = write_scenes(out, per_class, size, seed, step)
    words.print(f"{written} scenes of {len(CLASSES)} classes written to {out}")


@app.command("kitsap")
@guarded
def kitsap(out: Annotated[Path, typer.Argument(help="The file to write the scene to.")] = Path("kitsap.tif")) -> None:
    """Fetch a real aerial scene to map: 5000 x 5000 pixels of Kitsap County, USA, at 0.3 m.

    Example: mgcap datasets kitsap kitsap.tif
    """
    import shutil

    from mgcap.data.sample_scene import sample_scene
    from mgcap.persistence.files import atomic_path

    target = check_writable(out)
    scene = sample_scene(bars.say)
    with atomic_path(target) as temporary:
        shutil.copyfile(scene, temporary)
    data.print(str(target), markup=False)


@app.command("sample")
@guarded
def sample(
    mapped: Annotated[Path, typer.Argument(metavar="MAP", help="A map: its .gpkg, or the .tif beside it.")],
    out: Annotated[Path, typer.Option(help="The GeoPackage to write the points to.")] = Path("points.gpkg"),
    per_class: Annotated[
        int | None,
        typer.Option(
            help="Points of each class, with --total the least; default: 50, or fewer if --total is small.", min=2
        ),
    ] = None,
    total: Annotated[
        int | None, typer.Option(help="All points: what is left goes to the classes by their areas.", min=2)
    ] = None,
    seed: o.Seed = 0,
) -> None:
    """Draw random points in each class of a map, to look up what is there and so to test the map.

    Fill in the field class, then: mgcap map scene.tif --reference points.gpkg

    Example: mgcap datasets sample landuse.gpkg --total 600 --out points.gpkg
    """
    try:
        import pyogrio  # noqa: F401
        import rasterio  # noqa: F401
    except ImportError as error:
        raise DataError("maps need rasterio, pyogrio and more: pip install 'mgcap[geo]'") from error
    from mgcap.geo.cellmap import read_cells
    from mgcap.geo.geopackage import check_replaced
    from mgcap.geo.sampling import LAYER, draw_points, write_points

    target = check_writable(out)
    check_replaced(target, LAYER, "class")
    cells = read_cells(mapped)
    drawn = draw_points(cells, per_class, total, seed)
    write_points(target, drawn, cells)
    share = 100 * drawn.areas / drawn.areas.sum()
    listed = sorted((k for k in range(len(cells.classes)) if drawn.counts[k]), key=lambda k: -drawn.areas[k])
    show_table(
        ("class", "share of the area, %", "points"),
        [(cells.classes[k], f"{share[k]:.2f}", int(drawn.counts[k])) for k in listed],
    )
    words.print(f"{len(drawn.points)} points in random order; fill in the field class", markup=False)
    data.print(str(target), markup=False)


app.command("tiles")(tiles)
