"""Accuracy on rotated test images, which training never saw.

    python benchmarks/robustness.py DATA --preset paper --granularities 1.0 0.9 0.8 --per-class 10

Trains on 80 % of each class, upright. The test images are rotated about their centre by 0, 15, ..., 345 degrees, with
mirrored corners, and classified by MG-CAP at one granularity with 1, 4 and 12 rotations, and by the plain features of
the same network: its activated map, averaged over positions, with the same exact head. The first granularity is used;
the others only let the pass share its features with the ablation studies.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import write_rows
from torch import Tensor

from mgcap.classifier import SceneClassifier
from mgcap.cli.console import bars
from mgcap.data.augmentation import rotated
from mgcap.data.folders import content_hashes, open_folder
from mgcap.data.splits import make_split
from mgcap.data.stream import image_batches, to_tensor
from mgcap.data.synthetic import calibration_scenes
from mgcap.inference.calibration import calibration_views, fit_reductions
from mgcap.inference.descriptors import cached_descriptors
from mgcap.inference.extraction import Extractor
from mgcap.inference.forward import Variant, describe, walk_variants
from mgcap.inference.pipeline import Piece, images_together, stream_features
from mgcap.inference.preparation import build_model, prepare_engine
from mgcap.model import MGCAP
from mgcap.persistence.cache import FeatureCache
from mgcap.report.charts import new_figure, save_figure
from mgcap.report.colours import CHART
from mgcap.training.softmax import solve_head

COUNTS = (1, 4, 12)
PLAIN = "plain features, averaged"


def averages(pieces: Iterator[Piece], into: dict[int, Tensor]) -> Iterator[Piece]:
    """Pass pieces on and keep the averaged features of the upright views."""
    for piece in pieces:
        if piece.first_rotation == 0:
            into.update(zip(piece.indices, piece.features[:, 0].relu().mean(-1), strict=True))
        yield piece


@torch.inference_mode()
def plain_features(model: MGCAP, items: list) -> Tensor:  # type: ignore[type-arg]
    found = []
    with bars("Plain features of the training images", len(items)) as step:
        for _, images in image_batches(items, 8, lambda i, e: None):
            found.append(model.features_at(images, 0, [0.0])[:, 0].relu().mean(-1))
            step(len(images))
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--granularities", type=float, nargs="+", default=[1.0])
    parser.add_argument("--per-class", type=int, default=10, help="test images of each class")
    parser.add_argument("--step", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--png", type=Path)
    args = parser.parse_args()
    folder = open_folder(args.data)
    split = make_split(folder.targets, 0.8, args.seed, content_hashes(folder.paths), folder.classes)
    train = folder.subset(split.train)
    classifier = SceneClassifier(
        args.preset, engine=args.engine, rotations=max(COUNTS), granularities=tuple(args.granularities), progress=bars
    )
    config = classifier.configuration(len(folder.classes))
    model, _ = build_model(config, classifier.weights, classifier.runtime())
    views = partial(calibration_views, model, calibration_scenes())
    engine = prepare_engine(model, classifier.runtime(), views)
    if config.reduction == "pca":
        (model.reduction,) = fit_reductions(model, engine, train.paths, [range(len(train))], args.seed)
    variants = [Variant(config, model.reduction, COUNTS)]
    extractor = Extractor(model, engine, FeatureCache(say=bars.say), variants)
    with bars("Features of the training images", len(train)) as step:
        keys = [key for key in extractor.fill(train.paths, lambda i, e: None, step) if key]
    configs = {count: config.replace(rotations=count, granularities=config.granularities[:1]) for count in COUNTS}
    heads = {}
    targets = [folder.classes.index(label) for label in train.labels]
    for count, own in configs.items():
        rows = cached_descriptors(extractor, keys, 0, own)
        heads[f"MG-CAP, {count} rotation" + "s" * (count > 1)] = solve_head(rows, targets, len(folder.classes))
    heads[PLAIN] = solve_head(plain_features(model, list(train.paths)).clone(), targets, len(folder.classes))
    by_class: dict[int, list[int]] = {}
    for index in split.test:
        by_class.setdefault(folder.targets[index], []).append(index)
    test = [index for members in by_class.values() for index in members[: args.per_class]]
    truth = torch.tensor([folder.targets[i] for i in test])
    images = [to_tensor(folder.paths[i]) for i in test]
    angles = range(0, 360, args.step)
    kinds = {(0, 0, count) for count in COUNTS}
    rows = []
    with bars("Rotated test images", len(test) * len(angles)) as step, torch.no_grad():
        for angle in angles:
            items = [rotated(image, angle).clamp(0, 1) for image in images]
            upright: dict[int, Tensor] = {}
            batches = image_batches(items, images_together(max(COUNTS), "cpu"), lambda i, e: None)
            pieces = averages(stream_features(model, batches, engine, [0]), upright)
            logits: dict[str, list[Tensor]] = {name: [] for name in heads}
            for _, pools in walk_variants(model, variants, pieces, kinds):
                for (name, head), count in zip(list(heads.items())[:-1], COUNTS, strict=True):
                    vector = describe(pools[0, 0, count].pooled[None, None], configs[count])
                    logits[name].append((vector @ head.weight.T + head.bias)[0])
                step(1)
            plain = torch.stack([upright[i] for i in range(len(items))])
            logits[PLAIN] = list(plain @ heads[PLAIN].weight.T + heads[PLAIN].bias)
            for name, found in logits.items():
                right = (torch.stack(found).argmax(1) == truth).float().mean()
                row = {"method": name, "angle": angle, "accuracy": round(100 * float(right), 2), "images": len(test)}
                rows.append({"preset": args.preset, **row})
            bars.say(", ".join(f"{r['method']} {r['accuracy']:.2f}" for r in rows[-len(heads) :]) + f" at {angle}")
    for name in heads:
        own = [row["accuracy"] for row in rows if row["method"] == name]
        print(f"{name:28s} upright {own[0]:6.2f}  mean {sum(own) / len(own):6.2f}  worst {min(own):6.2f}")
    write_rows(args.csv, rows)
    if args.png:
        draw(rows, args.png)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """A line for each method."""
    figure = new_figure(8, 4.3)
    axes = figure.subplots()
    for colour, name in zip(CHART, dict.fromkeys(row["method"] for row in rows), strict=False):
        own = [(float(row["angle"]), float(row["accuracy"])) for row in rows if row["method"] == name]
        axes.plot(*zip(*own, strict=True), "o-", color=colour, label=name)
    axes.set(xlabel="rotation of the test images, degrees", ylabel="accuracy, %")
    axes.set_xticks(range(0, 361, 45))
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    save_figure(figure, path)


if __name__ == "__main__":
    main()
