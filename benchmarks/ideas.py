"""Ideas to make the paper's configuration faster on a CPU, each against what it would replace, in one run.

    python benchmarks/ideas.py requests          # views in a request, requests at once
    python benchmarks/ideas.py embedding         # how matrices are made and pooled
    python benchmarks/ideas.py crops DATA        # smaller frames for the four rotations that fit them

``crops`` looks at 12 rotations of one granularity of VGG-16 in int8. At multiples of 90 degrees the content is a
158-pixel square in the frame of 224, so a smaller frame holds it; the positions outside get the features of an empty
view. The head is trained on 20 images of each class and tested on 20 others.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.linalg.blas import ssyrk

from mgcap.backbones.pretrained import load_weights
from mgcap.bench.speed import drawn_images, random_model
from mgcap.config import MGCAPConfig
from mgcap.data.folders import open_folder
from mgcap.data.stream import image_batches
from mgcap.embedding import gaussian_embedding, normalise_features
from mgcap.inference.calibration import calibration_views
from mgcap.inference.engines import openvino
from mgcap.inference.engines.torch import keep_freed_memory
from mgcap.inference.forward import describe, embed
from mgcap.pooling import canonical_max, pool_rotations
from mgcap.training.softmax import LinearHead, solve_head

CONFIG = MGCAPConfig(preset="paper", share_granularities=True, granularities=(1.0,))


def measure(contenders: dict[str, Callable[[], Any]], repeats: int = 9) -> None:
    """One after the other: thread pools of different libraries that take turns wait for each other."""
    for name, run in contenders.items():
        times = []
        for _ in range(repeats + 2):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        print(f"{name}: {1e3 * statistics.median(times[2:]):.2f} ms", flush=True)


def requests() -> None:
    """12 views of one granularity, as the pipeline has them."""
    model, images = random_model(CONFIG), drawn_images(1)
    engine = openvino.OpenVinoEngine(
        list(model.backbones), 224, lambda: calibration_views(model, images), openvino.Progress()
    )
    views = torch.rand(12, 3, 224, 224)

    def run(size: int) -> Callable[[], Any]:
        def features() -> None:
            openvino.request_size, kept = (lambda views, requests: size), openvino.request_size
            engine.features(views, 0)
            openvino.request_size = kept

        return features

    measure({f"12 views in requests of {size}, 2 at once": run(size) for size in (1, 2, 3, 4, 6, 12)})


def embedding() -> None:
    keep_freed_memory()
    features = normalise_features(torch.randn(12, 512, 196))
    matrices = gaussian_embedding(features)
    first = np.asfortranarray(features[0].numpy().T)

    def copies() -> torch.Tensor:
        mean = features.mean(-1, keepdim=True)
        second = features @ features.mT / features.shape[-1]
        top = torch.cat((second, mean), -1)
        bottom = torch.cat((mean.mT, torch.ones_like(mean[..., :1, :])), -1)
        matrix = torch.cat((top, bottom), -2)
        trace = matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
        return matrix + (1e-4 * trace)[..., None, None] * torch.eye(matrix.shape[-1])

    measure(
        {
            "12 Gaussian matrices, put together from blocks": copies,
            "12 Gaussian matrices, one product of homogeneous features": lambda: gaussian_embedding(features),
            "one general product (sgemm)": lambda: features[0] @ features[0].T,
            "one symmetric product (ssyrk)": lambda: ssyrk(1.0, first, trans=1),
            "maximum over 12 with its winners": lambda: canonical_max(matrices),
            "maximum over 12 alone": lambda: pool_rotations(matrices),
        }
    )


@torch.no_grad()
def crops(data: Path, frames: tuple[int, ...] = (192, 176, 160)) -> None:
    folder = open_folder(data)
    rng = np.random.default_rng(0)
    targets = np.array(folder.targets)
    orders = [rng.permutation(np.flatnonzero(targets == c)) for c in range(len(folder.classes))]
    train, test = np.concatenate([o[:20] for o in orders]), np.concatenate([o[-20:] for o in orders])
    paths = [folder.paths[i] for i in (*train, *test)]
    model = random_model(CONFIG.replace(num_classes=len(folder.classes)))
    model.load_backbone(load_weights("vgg16", print).state)
    views = calibration_views(model, paths[: len(train)])
    networks = list(model.backbones)
    engines = {224: openvino.OpenVinoEngine(networks, 224, lambda: views, openvino.Progress())}
    constants = engines[224].quantisation
    for size in frames:  # the same quantisation for all, found on whole frames
        engines[size] = openvino.OpenVinoEngine(networks, size, constants, openvino.Progress())
    empty = engines[224].features(torch.zeros(1, 3, 224, 224), 0).unflatten(-1, (14, 14))
    rows: dict[int, list[torch.Tensor]] = {size: [] for size in engines}
    seconds = dict.fromkeys(engines, 0.0)
    for _, images in image_batches(paths, 4, lambda i, e: None):
        rotated = model.views_at(images, 0, CONFIG.angles)
        whole = engines[224].features(rotated.flatten(0, 1), 0).unflatten(-1, (14, 14)).unflatten(0, rotated.shape[:2])
        for size, engine in engines.items():
            features, edge, side = whole.clone(), (14 - size // 16) // 2, size // 16
            part = rotated[:, ::3, :, 16 * edge : 16 * edge + size, 16 * edge : 16 * edge + size].flatten(0, 1)
            start = time.perf_counter()
            content = engine.features(part.contiguous(), 0).unflatten(-1, (side, side))
            seconds[size] += time.perf_counter() - start
            features[:, ::3] = empty
            features[:, ::3, :, edge : edge + side, edge : edge + side] = content.unflatten(0, (len(images), 4))
            matrices = embed(features.flatten(-2), model.config, model.reduction)
            pooled = pool_rotations(matrices, model.config.rotation_pooling)
            rows[size].append(describe(pooled[:, None], model.config))
    count, truth = len(train), torch.as_tensor(targets[test])
    full = torch.cat(rows[224])
    head = _trained(full[:count], targets[train].tolist(), len(folder.classes))
    reference = (full[count:] @ head.weight.T + head.bias).argmax(1)
    for size in engines:
        own = torch.cat(rows[size])
        retrained = _trained(own[:count], targets[train].tolist(), len(folder.classes))
        for name, each in (("head of whole frames", head), ("head of its own", retrained)):
            labels = (own[count:] @ each.weight.T + each.bias).argmax(1)
            print(
                f"frame {size}, {name}: same label {100 * (labels == reference).double().mean():.2f} %, "
                f"accuracy {100 * (labels == truth).double().mean():.2f} %, cosine "
                f"{F.cosine_similarity(own, full).mean():.4f}, {1e3 * seconds[size] / len(paths) / 4:.1f} ms a view",
                flush=True,
            )


@torch.enable_grad()
def _trained(rows: torch.Tensor, targets: list[int], classes: int) -> LinearHead:
    return solve_head(rows.clone(), targets, classes, (1e-7,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("idea", choices=("requests", "embedding", "crops"))
    parser.add_argument("data", type=Path, nargs="?")
    args = parser.parse_args()
    if args.idea == "crops":
        crops(args.data)
    else:
        {"requests": requests, "embedding": embedding}[args.idea]()


if __name__ == "__main__":
    main()
