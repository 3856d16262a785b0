"""``mgcap predict``."""

from __future__ import annotations

import csv
import glob
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.cli import completion as c
from mgcap.cli import options as o
from mgcap.cli.console import bars, data, guarded, show_table, words
from mgcap.cli.signature import expanded
from mgcap.errors import DataError, ImageError, did_you_mean
from mgcap.persistence.shipped import DEFAULT_MODEL

Row = dict[str, Any]

#: What ``--format`` takes.
FORMATS = ("table", "csv", "json")
#: An image whose sides are this many times longer than those of the training images shows more than one scene; one that
#: says where it lies, from the second number on.
LARGE, LARGE_WITH_PLACE = 4, 2


def expand(patterns: list[str]) -> list[Path]:
    """Files from files, globs and folders, in the order given; what does not exist is kept, to get its own row."""
    from mgcap.data.folders import list_images

    files: list[Path] = []
    for pattern in patterns:
        path = _home(pattern)
        if _is(path.is_dir):
            found = list_images(path)
            if not found:
                raise DataError(f"there are no images in {path}")
            files += found
        else:
            matches = globbed(pattern)
            found = [m for m in matches if m == path or _is(m.is_file)]
            if not found:
                raise DataError(f"only folders match {pattern}, as {matches[0]}")
            files += found
    return files


def globbed(pattern: str) -> list[Path]:
    """What matches a glob, sorted; what is none is a path, whether it is there or not."""
    path = _home(pattern)
    if not glob.has_magic(pattern) or _is(path.exists):
        return [path]
    matches = sorted(Path(m) for m in glob.glob(str(path), recursive=True))  # noqa: PTH207 (patterns may be absolute)
    if not matches:
        raise DataError(f"nothing matches {pattern}")
    return matches


def _home(pattern: str) -> Path:
    try:
        return Path(pattern).expanduser()
    except RuntimeError:  # there is no such user
        return Path(pattern)


def _is(question: Callable[[], bool]) -> bool:
    """Whether a path is there; no if its name is too long or its folder closed."""
    try:
        return question()
    except OSError:
        return False


@guarded
@expanded
def predict(
    images: Annotated[list[str], typer.Argument(help="Files, globs and folders.")],
    model: o.Model = DEFAULT_MODEL,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Format of the answers: table, csv or json; default: table on a terminal, else csv.",
            autocompletion=c.one_of(FORMATS),
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of most probable classes to list.")] = 5,
    unknown: o.Unknown = 0.0,
    add: o.Add = None,
    engine: o.Engine = "auto",
    device: o.Device = "auto",
    cache: o.Cache = True,
) -> None:
    """Say what each image shows: class, probability and the top 5.

    A file that cannot be read gets a row with its error. The exit code is 1 if none could be read.

    Example: mgcap predict photo.jpg tiles/ "more/*.tif" --model model.mgcap --format csv
    """
    from mgcap.classifier import SceneClassifier
    from mgcap.head import top_classes
    from mgcap.inference.unknown import UNKNOWN

    form = form or ("table" if data.is_terminal else "csv")
    if form not in FORMATS:
        raise DataError(f"--format takes table, csv or json, not '{form}'{did_you_mean(form, FORMATS)}")
    files = expand(images)
    o.run_added(add)
    classifier = SceneClassifier.load(model, device=device, engine=engine, progress=bars, cache=cache)
    limits = classifier.limits(unknown)
    errors: dict[int, ImageError] = {}
    found = classifier.predict_readable(files, on_error=errors.__setitem__)
    kept, strange = found.indices, limits.unknown(found.probabilities, found.distances)
    distances = [None] * len(kept) if found.distances is None else found.distances.round(6).tolist()
    empty: Row = {"class": None, "probability": None, "unknown": None, "distance": None, "top": [], "error": None}
    rows: list[Row] = [{"path": str(file), **empty} for file in files]
    for index, p, doubtful, distance in zip(kept, found.probabilities, strange, distances, strict=True):
        best = [{"class": name, "probability": round(q, 6)} for name, q in top_classes(classifier.classes_, p, top)]
        rows[index] |= {**best[0], "unknown": bool(doubtful), "distance": distance, "top": best}
        if doubtful:
            rows[index]["class"] = UNKNOWN
    for index, error in errors.items():
        rows[index]["error"] = str(error)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # file names need not be text
    {"csv": _csv, "json": _json, "table": _table}[form](rows)
    _advise_map(files, classifier.imagery_.side)
    if errors:
        words.print(f"{len(errors)} of {len(files)} images could not be read")
    if not kept:
        raise SystemExit(1)


def _advise_map(files: list[Path], side: int) -> None:
    """Say that large rasters are for ``mgcap map``: here each of them gets one class."""
    large = [path for path in files if is_large(path, side)]
    if large:
        more = f" and {len(large) - 1} more" if len(large) > 1 else ""
        words.print(
            f"{large[0]}{more}: far larger than the training images ({side} pixels), so it gets one class at most; "
            "mgcap map says what each part shows",
            markup=False,
        )


def is_large(path: Path, side: int) -> bool:
    """Whether a file is rather a raster to map than a scene: by its header, whatever can be read of it."""
    import tifffile

    try:
        if path.suffix.lower() in (".tif", ".tiff"):
            with tifffile.TiffFile(path) as file:
                page = file.pages.first
                longest, placed = max(page.imagewidth, page.imagelength), bool(page.is_geotiff)
        else:
            longest, placed = max(_size(path)), False
    except Exception:  # what cannot be read has its own row
        return False
    return longest >= (LARGE_WITH_PLACE if placed else LARGE) * side


def _size(path: Path) -> tuple[int, int]:
    from PIL import Image

    from mgcap.data.decoding import OPENED

    with Image.open(path, formats=OPENED) as image:
        return image.size


def _csv(rows: list[Row]) -> None:
    width = max((len(row["top"]) for row in rows), default=0)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    extra = [f"{name}_{i}" for i in range(2, width + 1) for name in ("class", "probability")]
    writer.writerow(("path", "class", "probability", *extra, "error"))
    for row in rows:
        best = [value for entry in row["top"] for value in (entry["class"], f"{entry['probability']:.6f}")]
        best[:1] = [row["class"]] if best else []
        best += [""] * (2 * max(width, 1) - len(best))
        writer.writerow((row["path"], *best, row["error"] or ""))


def _json(rows: list[Row]) -> None:
    json.dump(
        [{**{k: v for k, v in row.items() if k != "top"}, "top5": row["top"]} for row in rows], sys.stdout, indent=1
    )
    sys.stdout.write("\n")


def _table(rows: list[Row]) -> None:
    cells = []
    for row in rows:
        likely = [entry for entry in row["top"][1:] if entry["probability"] >= 0.0005]  # shown as 0.001 or more
        then = ", ".join(f"{entry['class']} {entry['probability']:.3f}" for entry in likely)
        answer = ("-", "", row["error"]) if row["error"] else (row["class"], f"{row['probability']:.3f}", then)
        cells.append((row["path"], *answer))
    show_table(("image", "class", "probability", "then"), cells)
