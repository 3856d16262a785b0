"""Which unlabelled scenes to fit the universal descriptor to: accuracy with its axes beside axes of each split's own.

python benchmarks/universal.py UCMERCED --deepforest deepforest-2.1.0-py3-none-any.whl --csv universal.csv

All axes see features of one pass: of drawn scenes, of tiles of a raster of Kitsap County, of the samples in the
package deepforest, of some of these together, and of the training images of each split. No axes but the last see any
image of the data set. Splits are those of ``mgcap evaluate`` with the same seeds.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from mgcap.backbones.pretrained import state_hash
from mgcap.cli.console import bars
from mgcap.config import MGCAPConfig
from mgcap.data.folders import content_hashes, open_folder
from mgcap.data.sample_scene import sample_scene
from mgcap.data.splits import make_split
from mgcap.data.synthetic import calibration_scenes
from mgcap.evaluation.metrics import score
from mgcap.inference.calibration import calibration_views, fit_reductions
from mgcap.inference.descriptors import cached_descriptors
from mgcap.inference.engines.openvino import versions
from mgcap.inference.extraction import Extractor
from mgcap.inference.forward import Variant
from mgcap.inference.preparation import build_model, open_cache, prepare_engine
from mgcap.inference.universal import Card, UniversalDescriptor, write_descriptor
from mgcap.persistence.files import write_rows
from mgcap.runtime import Runtime
from mgcap.training.softmax import LAMBDAS, HeadSolver
from mgcap.typing import Array

parser = argparse.ArgumentParser()
parser.add_argument("data", type=Path)
parser.add_argument("--deepforest", type=Path, help="The wheel of deepforest 2.1.0, as pip download gives it.")
parser.add_argument("--runs", type=int, default=10)
parser.add_argument("--csv", type=Path)
parser.add_argument("--write", metavar="AXES", help="Do not compare: write the descriptor with these axes ...")
parser.add_argument("--preset", default="compact", help="Whose descriptor is fitted.")
parser.add_argument("--to", type=Path, default=Path("compact.descriptor"), help="... to this file.")
args = parser.parse_args()


def tiles(pixels: Array, side: int = 256) -> list[Array]:
    height, width = (n // side for n in pixels.shape[:2])
    return [
        np.ascontiguousarray(pixels[side * i : side * (i + 1), side * j : side * (j + 1), :3])
        for i in range(height)
        for j in range(width)
    ]


def forest(wheel: Path) -> list[Array]:
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith((".png", ".JPG")) and "/data/" in name:
                found += tiles(np.asarray(Image.open(io.BytesIO(archive.read(name))).convert("RGB")))
    return found


def write(scenes: list[Array | Path], fitted_to: str) -> None:
    runtime = Runtime(progress=bars)
    config = MGCAPConfig(preset=args.preset)
    model, _ = build_model(config, "imagenet", runtime)
    engine = prepare_engine(model, runtime, partial(calibration_views, model, calibration_scenes()))
    (reduction,) = fit_reductions(model, engine, scenes, [range(len(scenes))])
    card = Card(
        name=config.preset,
        version=1,
        backbone=config.backbone,
        layer=str(config.layer),
        activated=config.activated,
        size=config.size,
        network=state_hash(model.backbones[0].state_dict()),
        fitted_to=f"{fitted_to} scenes; int8 on drawn scenes with {versions()}",
    )
    descriptor = UniversalDescriptor(card, reduction.basis, reduction.mean, engine.quantisation)
    write_descriptor(args.to, descriptor)
    print(f"{args.to}: {args.to.stat().st_size} bytes, fingerprint {descriptor.fingerprint}")


def main() -> None:
    runtime = Runtime(progress=bars)
    folder = open_folder(args.data)
    Image.MAX_IMAGE_PIXELS = None
    with Image.open(sample_scene(bars.say)) as picture:
        pools = {"Kitsap": tiles(np.asarray(picture.convert("RGB")))}
    pools["drawn"] = list(calibration_scenes())
    if args.deepforest:
        pools["deepforest"] = forest(args.deepforest)
    items: list[Array | Path] = list(folder.paths)
    places: dict[str, list[int]] = {}
    for name, pictures in pools.items():
        places[name] = list(range(len(items), len(items) + len(pictures)))
        items += pictures
        print(f"{name}: {len(pictures)} scenes of 256 pixels")
    groups = dict(places)
    groups["Kitsap + drawn"] = [*places["Kitsap"], *places["drawn"]]
    if args.deepforest:
        groups["Kitsap + deepforest"] = [*places["Kitsap"], *places["deepforest"]]
    if args.write:
        write([items[i] for i in groups[args.write]], args.write)
        return
    fingerprints = content_hashes(folder.paths)
    splits = {
        (ratio, run): make_split(folder.targets, ratio, run, fingerprints, folder.classes)
        for ratio in (0.5, 0.8)
        for run in range(args.runs)
    }
    model, _ = build_model(MGCAPConfig(preset=args.preset, num_classes=len(folder.classes)), "imagenet", runtime)
    engine = prepare_engine(model, runtime, partial(calibration_views, model, calibration_scenes()))
    everything = [*groups.values(), *(split.train for split in splits.values())]
    with bars("Fitting PCA", None) as step:
        reductions = fit_reductions(model, engine, items, everything, 0, step)
    variants = [Variant(model.config, reduction, (model.config.rotations,)) for reduction in reductions]
    extractor = Extractor(model, engine, open_cache(runtime), variants)
    with bars("Extracting features", len(folder)) as step:
        keys = [key for key in extractor.fill(folder.paths, lambda i, e: None, step) if key]
    rows = []
    accuracies: dict[tuple[str, float], list[float]] = {}

    def measure(name: str, solver: HeadSolver, ratio: float, run: int) -> None:
        split = splits[ratio, run]
        solution = solver.solve(list(split.train), LAMBDAS, seed=0)
        truth = torch.tensor([folder.targets[i] for i in split.test])
        scores = score(solver.logits(solution, list(split.test)), truth, len(folder.classes))
        accuracies.setdefault((name, ratio), []).append(scores.accuracy)
        rows.append({"axes": name, "ratio": ratio, "run": run, "accuracy": round(scores.accuracy, 4)})

    for number, name in enumerate(groups):
        solver = HeadSolver(cached_descriptors(extractor, keys, number), folder.targets, len(folder.classes))
        for ratio, run in splits:
            measure(name, solver, ratio, run)
    for number, (ratio, run) in enumerate(splits, start=len(groups)):
        solver = HeadSolver(cached_descriptors(extractor, keys, number), folder.targets, len(folder.classes))
        measure("of the training images", solver, ratio, run)
    for (name, ratio), own in accuracies.items():
        print(f"{name:24} {ratio:.0%}  {np.mean(own):.2f} +- {np.std(own, ddof=1):.2f}")
    if args.csv:
        write_rows(args.csv, rows)


if __name__ == "__main__":
    main()
