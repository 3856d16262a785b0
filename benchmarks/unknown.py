"""What `--unknown` leaves of a map of the sample scene: of river, where there is none, and of what is right.

    python benchmarks/unknown.py kitsap.tif --csv benchmarks/results/unknown.csv

Forest, housing and the freeway were drawn by hand, inside what they cover; a cell is right where its middle lies in one
of these areas and it has one of the area's classes without `--unknown`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from common import write_rows
from PIL import Image, ImageDraw

from mgcap import SceneClassifier
from mgcap.cli.console import bars
from mgcap.geo.mapping import map_raster

parser = argparse.ArgumentParser()
parser.add_argument("raster", type=Path)
parser.add_argument("--model", default="ucmerced")
parser.add_argument("--alphas", type=float, nargs="+", default=[0.002, 0.005, 0.01, 0.02, 0.05])
parser.add_argument("--csv", type=Path)
args = parser.parse_args()

#: Side of the picture that the areas were drawn on, in its pixels.
SIDE = 1092
FOREST = [
    [(60, 100), (130, 120), (230, 330), (350, 400), (350, 530), (150, 530), (60, 470)],
    [(250, 570), (455, 570), (510, 620), (470, 690), (270, 690)],
    [(85, 720), (180, 720), (180, 790), (100, 800)],
    [(400, 710), (470, 690), (480, 800), (430, 840), (400, 800)],
    [(260, 1080), (430, 975), (430, 1080)],
]
HOUSING = [
    [(940, 590), (1085, 590), (1085, 1085), (960, 1085)],
    [(520, 910), (730, 910), (760, 980), (760, 1080), (490, 1080)],
    [(870, 440), (1085, 450), (1085, 540), (950, 540)],
]
FREEWAY = [
    (430, 0), (520, 75), (640, 190), (710, 280), (770, 380), (850, 520), (885, 600), (905, 700), (910, 850),
    (925, 1000), (930, 1090),
]  # fmt: skip


def cells_in(shape: tuple[int, int], polygons: list[list[tuple[int, int]]], line: list[tuple[int, int]]) -> np.ndarray:
    """Which cells have their middle in an area."""
    picture = Image.new("L", (SIDE, SIDE))
    pen = ImageDraw.Draw(picture)
    for polygon in polygons:
        pen.polygon(polygon, fill=1)
    if line:
        pen.line(line, fill=1, width=40)
    rows, columns = (((np.arange(n) + 0.5) * SIDE / n).astype(int) for n in shape)
    return np.asarray(picture)[np.ix_(rows, columns)] > 0


classifier = SceneClassifier.load(args.model, progress=bars)
names = [str(name) for name in classifier.classes_]
with tempfile.TemporaryDirectory() as folder:
    done = map_raster(classifier, args.model, args.raster, Path(folder) / "map.gpkg", unknown=0, progress=bars)
probabilities, distance, known = done.found.probabilities, done.found.distance, done.found.has_data
labels = np.array(names)[np.nan_to_num(probabilities).argmax(-1)]
areas = {
    "forest": (cells_in(labels.shape, FOREST, []), ["forest"]),
    "housing": (cells_in(labels.shape, HOUSING, []), [name for name in names if name.endswith("residential")]),
    "freeway": (cells_in(labels.shape, [], FREEWAY), ["freeway"]),
}
rows = []
for alpha in [0, *args.alphas]:
    unknown = np.zeros(labels.shape, bool)
    if alpha:
        unknown = classifier.limits(alpha).unknown(probabilities, distance)
    row: dict[str, float] = {"unknown": alpha, "share_unknown": 100 * float(unknown[known].mean())}
    row["share_river"] = 100 * float(((labels == "river") & ~unknown)[known].mean())
    for name, (inside, right) in areas.items():
        cells = inside & np.isin(labels, right)
        row[f"{name}_kept"] = 100 * float((~unknown)[cells].mean())
        row[f"{name}_cells"] = int(cells.sum())
    rows.append({key: round(value, 3) for key, value in row.items()})
    print(rows[-1], flush=True)
if args.csv:
    write_rows(args.csv, rows)
