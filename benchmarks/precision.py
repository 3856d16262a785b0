"""What int8 features and half-precision rows change: the same head on the same held-out images.

    python benchmarks/precision.py DATA --preset compact --csv benchmarks/results/precision.csv

A head is trained on fp32 features of 80 % of the images and then sees the held-out ones three times: in fp32, with
pooled matrices rounded as the feature cache rounds them, and with int8 features (calibrated on training views).
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from mgcap.classifier import SceneClassifier
from mgcap.data.folders import content_hashes, open_folder
from mgcap.data.splits import make_split
from mgcap.data.stream import image_batches
from mgcap.inference.calibration import calibration_views
from mgcap.inference.descriptors import stream_answers
from mgcap.inference.engines import Engine, open_engine
from mgcap.inference.forward import describe, embed
from mgcap.persistence.cache import pack, unpack


@torch.inference_mode()
def rounded(model, paths) -> torch.Tensor:  # type: ignore[no-untyped-def]
    """Descriptors from pooled matrices in half precision."""
    rows = []
    for _, images in image_batches(paths, 4, lambda i, e: None):
        pooled = [
            torch.cat([embed(f, model.config, model.reduction) for f in model.iter_features(images, s)], 1).amax(1)
            for s in range(len(model.config.granularities))
        ]
        stacked = torch.stack(pooled, 1)
        half = unpack(*pack(stacked.flatten(0, 1).flatten(1))).view_as(stacked)
        rows.append(describe(half, model.config))
    return torch.cat(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--preset", default="compact")
    parser.add_argument("--rotations", type=int)
    parser.add_argument("--granularities", type=float, nargs="+")
    parser.add_argument("--engine", default="openvino-fp32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv", type=Path)
    args = parser.parse_args()
    options = {"rotations": args.rotations, "granularities": args.granularities and tuple(args.granularities)}
    given = {name: value for name, value in options.items() if value}
    folder = open_folder(args.data)
    split = make_split(folder.targets, 0.8, args.seed, content_hashes(folder.paths), folder.classes)
    train, test = folder.subset(split.train), folder.subset(split.test)
    classifier = SceneClassifier(args.preset, engine=args.engine, seed=args.seed, **given)
    classifier.fit(train.paths, train.labels)
    model = classifier.model_

    def descriptors(engine: Engine) -> torch.Tensor:
        answers = stream_answers(model, engine, test.paths, lambda i, e: None)
        return torch.cat([found.descriptors for _, found in answers])

    seen = {"fp32": descriptors(classifier.engine_), "half-precision rows": rounded(model, test.paths)}
    networks = list(model.backbones)
    views = calibration_views(model, train.paths, args.seed)
    seen["int8"] = descriptors(open_engine("openvino", networks, model.config.size, lambda: views))
    truth = np.array(test.labels)
    labels = {name: classifier.classes_[model.head(rows).argmax(1).numpy()] for name, rows in seen.items()}
    for name, rows in seen.items():
        row = {
            "preset": args.preset,
            "options": " ".join(f"{k}={v}" for k, v in given.items()),
            "features": name,
            "test_images": len(rows),
            "accuracy": f"{100 * (labels[name] == truth).mean():.2f}",
            "same_label_as_fp32": f"{100 * (labels[name] == labels['fp32']).mean():.2f}",
            "mean_cosine_with_fp32": f"{F.cosine_similarity(rows, seen['fp32']).mean():.6f}",
        }
        print(row, flush=True)
        if args.csv:
            new = not args.csv.exists()
            with args.csv.open("a", newline="") as file:
                writer = csv.DictWriter(file, list(row))
                if new:
                    writer.writeheader()
                writer.writerow(row)


if __name__ == "__main__":
    main()
