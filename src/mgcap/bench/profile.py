"""Where the time goes: stages, growth with the configuration, the spectral layer, and the machine's limits."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from mgcap.bench.speed import drawn_images, random_model, ready_engine
from mgcap.config import MGCAPConfig
from mgcap.data.images import read_image
from mgcap.embedding import gaussian_embedding, normalise_features
from mgcap.errors import MgcapError
from mgcap.inference.descriptors import stream_answers
from mgcap.inference.engines import Engine, choose_engine
from mgcap.inference.forward import describe, embed
from mgcap.pooling import pool_rotations
from mgcap.spectral import matrix_sqrt

Row = dict[str, Any]


def median_seconds(run: Callable[[], Any], repeats: int) -> float:
    """Median time of some runs after one of warm-up."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def best_engine() -> str:
    """What ``auto`` stands for here."""
    return choose_engine("auto", "cpu")


@torch.inference_mode()
def bench_stages(config: MGCAPConfig, engine: str, repeats: int = 3) -> list[Row]:
    """Seconds per image of each stage by itself, and their shares; the pipeline overlaps them."""
    model, (image,) = random_model(config), drawn_images(1)
    opened = ready_engine(model, engine, [image])
    granularities, angles = range(len(config.granularities)), config.angles
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scene.jpg"
        Image.fromarray((image.permute(1, 2, 0).numpy() * 255).astype(np.uint8)).save(path)
        decode = median_seconds(lambda: read_image(path), 5)
    views = [model.views_at(image[None], g, angles)[0] for g in granularities]
    features = [opened.features(v, g) for g, v in enumerate(views)]
    matrices = [embed(f, config, model.reduction) for f in features]
    pooled = torch.stack([pool_rotations(m, config.rotation_pooling) for m in matrices])[None]
    rows = describe(pooled, config)
    stages: dict[str, Callable[[], Any]] = {
        "views": lambda: [model.views_at(image[None], g, angles) for g in granularities],
        "network": lambda: [opened.features(v, g) for g, v in enumerate(views)],
        "embedding": lambda: [embed(f, config, model.reduction) for f in features],
        "maximum": lambda: [pool_rotations(m, config.rotation_pooling) for m in matrices],
        "spectral and vector": lambda: describe(pooled, config),
        "head": lambda: model.head(rows),
    }
    seconds = {"decoding": decode} | {name: median_seconds(run, repeats) for name, run in stages.items()}
    total = sum(seconds.values())
    return [
        {"stage": name, "engine": engine, "milliseconds": f"{1e3 * s:.2f}", "share": f"{s / total:.3f}"}
        for name, s in seconds.items()
    ]


def bench_growth(config: MGCAPConfig, engine: str, repeats: int = 3) -> list[Row]:
    """Seconds per image as one of rotations, granularities, size and images at once changes."""
    crops = (1.0, 0.9, 0.8, 0.7)
    changes: list[tuple[str, Any, MGCAPConfig, int]] = []
    base = config.replace(granularities=(1.0,), rotations=4)
    changes += [("rotations", r, base.replace(rotations=r), 4) for r in (1, 2, 4, 6, 12)]
    changes += [("granularities", s, base.replace(granularities=crops[:s]), 4) for s in (1, 2, 3, 4)]
    changes += [("size", size, base.replace(size=size), 4) for size in (128, 192, 224, 320)]
    changes += [("images", n, base, n) for n in (1, 2, 4, 8, 16)]
    rows = []
    for what, value, changed, count in changes:
        model, images = random_model(changed), drawn_images(count)
        opened = ready_engine(model, engine, images)

        def run(model: Any = model, opened: Engine = opened, images: list[Tensor] = images) -> None:
            for _ in stream_answers(model, opened, images, lambda i, e: None):
                pass

        seconds = median_seconds(run, repeats) / count
        views = len(changed.granularities) * changed.rotations
        rows.append({"what": what, "value": value, "engine": engine, "views": views, "seconds": f"{seconds:.5f}"})
    return rows


def _by_eigh(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = (vectors * values.clamp(1e-5, 1e5).sqrt().unsqueeze(-2)) @ vectors.mT
    return root


def _by_svd(matrix: Tensor) -> Tensor:
    u, s, v = torch.linalg.svd(matrix)
    root: Tensor = (u * s.clamp(1e-5, 1e5).sqrt().unsqueeze(-2)) @ v
    return root


SPECTRAL: dict[str, Callable[[Tensor], Tensor]] = {
    "matrix_sqrt": matrix_sqrt,
    "eigh with autograd": _by_eigh,
    "svd with autograd": _by_svd,
    "newton-schulz": lambda matrix: matrix_sqrt(matrix, method="newton-schulz"),
}


def bench_spectral(sides: Sequence[int] = (64, 129, 257, 513), batch: int = 12, repeats: int = 3) -> list[Row]:
    """The spectral layer against its rivals, forward and backward, in turns."""
    rows = []
    for side in sides:
        features = torch.randn(batch, side - 1, 196, generator=torch.Generator().manual_seed(0))
        matrix = gaussian_embedding(normalise_features(features))
        weight = torch.randn_like(matrix)
        times: dict[str, list[float]] = {name: [] for name in SPECTRAL}
        finite = {}
        for repeat in range(repeats + 1):
            for name, function in SPECTRAL.items():
                leaf = matrix.clone().requires_grad_()
                start = time.perf_counter()
                function(leaf).mul(weight).sum().backward()  # type: ignore[no-untyped-call]
                if repeat:  # the first is warm-up
                    times[name].append(time.perf_counter() - start)
                finite[name] = leaf.grad is not None and bool(torch.isfinite(leaf.grad).all())
        ours = statistics.median(times["matrix_sqrt"])
        for name, values in times.items():
            median = statistics.median(values)
            rows.append(
                {
                    "side": side,
                    "batch": batch,
                    "method": name,
                    "seconds": f"{median:.4f}",
                    "times_ours": f"{median / ours:.2f}",
                    "gradient_finite": finite[name],
                }
            )
    return rows


def multiply_adds(config: MGCAPConfig) -> float:
    """Multiplications with addition that the network needs for one view."""
    from torch.utils.flop_counter import FlopCounterMode

    model = random_model(config.replace(granularities=(1.0,)))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.backbones[0](torch.zeros(1, 3, config.size, config.size))
    return float(counter.get_total_flops()) / 2


def peak_fp32(repeats: int = 5) -> float:
    """The highest rate of multiply-adds a second that a large matrix product in float32 reaches here."""
    a, b = torch.rand(2048, 2048), torch.rand(2048, 2048)
    return 2048.0**3 / median_seconds(lambda: a @ b, repeats)


def peak_int8(repeats: int = 5) -> float | None:
    """The same for wide 3 x 3 convolutions in int8 by OpenVINO; None where int8 cannot be used."""
    try:
        choose_engine("openvino", "cpu")
    except MgcapError:
        return None
    from mgcap.inference.engines.openvino import OpenVinoEngine
    from mgcap.runtime import seeded, silent

    with seeded(0):
        layers = [torch.nn.Sequential(torch.nn.Conv2d(512, 512, 3, padding=1), torch.nn.ReLU()) for _ in range(6)]
        network = torch.nn.Sequential(torch.nn.Conv2d(3, 512, 1), *layers).eval().requires_grad_(False)
        views = torch.rand(8, 3, 28, 28)
    engine = OpenVinoEngine([network], 28, lambda: list(views), silent)
    seconds = median_seconds(lambda: engine.features(views, 0), repeats)
    return 8 * 28 * 28 * 6 * 9 * 512.0**2 / seconds


def bench_limit(report: dict[str, Any], config: MGCAPConfig) -> list[Row]:
    """How close each contender of :func:`mgcap.bench.speed.bench_inference` comes to the machine's peak."""
    views = len(config.granularities) * config.rotations
    work = views * multiply_adds(config)
    fp32, int8 = peak_fp32(), peak_int8()
    rows = []
    for name in ("plain", "torch", "openvino_fp32", "openvino_int8"):
        peak, seconds = (int8 if name.endswith("int8") else fp32), report.get(name)
        if peak and seconds:
            rows.append(
                {
                    "contender": name,
                    "giga_multiply_adds_an_image": f"{work / 1e9:.1f}",
                    "peak_giga_multiply_adds_a_second": f"{peak / 1e9:.0f}",
                    "seconds_at_peak": f"{work / peak:.3f}",
                    "seconds": f"{seconds:.3f}",
                    "share_of_peak": f"{work / peak / seconds:.2f}",
                }
            )
    return rows
