"""Accuracy and time of the presets and of fewer views: what `mgcap presets` shows.

    python benchmarks/presets.py UCMERCED

Ten seeded splits at each share of training images, exact head, axes that are none of UC Merced's; the time of an image
that is decoded already, with all of its views, on this machine. Studies are resumed; features come from the cache.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mgcap import SceneClassifier
from mgcap.bench.presets import POINTS, Curve, Measured, configuration_of, milliseconds
from mgcap.cli.console import bars
from mgcap.cli.doctor import processor
from mgcap.data.folders import content_hashes, open_folder
from mgcap.data.splits import make_split
from mgcap.evaluation.protocol import Study
from mgcap.inference.engines.probe import available_cores

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("data", type=Path)
parser.add_argument("--out", type=Path, default=Path("presets"), help="Takes the runs.")
parser.add_argument("--runs", type=int, default=10)
parser.add_argument("--json", type=Path, default=Path("src/mgcap/persistence/shipped/presets.json"))
args = parser.parse_args()

folder = open_folder(args.data, progress=bars)
hashes = content_hashes(folder.paths)
points = []
for options in POINTS:
    config = configuration_of(options)
    classifier = SceneClassifier(progress=bars, **{"preset": config.preset, **config.given()})
    accuracy = {}
    for share in (0.5, 0.8):
        splits = [make_split(folder.targets, share, run, hashes, folder.classes) for run in range(args.runs)]
        place = args.out / f"{options.replace('--', '').replace(' ', '-')}-{share}"
        configs = {"run": classifier.configuration(len(folder.classes))}
        (summary,) = Study(classifier.setup(), folder, splits, configs, place).run().values()
        accuracy[f"{share:.0%}"] = round(summary["mean"], 2), round(summary["std"], 2)
    points.append(Measured(options=options, milliseconds=round(milliseconds(config), 1), accuracy=accuracy))
    print(points[-1], flush=True)
curve = Curve(
    machine=f"{available_cores()} cores, {processor()}",
    command="python benchmarks/presets.py UCMERCED",
    points=tuple(points),
)
args.json.write_text(json.dumps(curve.model_dump(), indent=1) + "\n", encoding="utf-8")
