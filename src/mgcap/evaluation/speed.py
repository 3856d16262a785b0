"""Seconds per image and peak memory of the plain port and of each engine, in one run."""

from __future__ import annotations

import copy
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.engines import choose_engine, open_engine
from mgcap.errors import MgcapError
from mgcap.evaluation.plain import plain_logits
from mgcap.model import MGCAP
from mgcap.progress import Progress, silent
from mgcap.training.frozen import calibration_views

#: Name in the report -> engine; the plain port has none.
CONTENDERS = {"plain": None, "torch": "torch", "openvino_fp32": "openvino-fp32", "openvino_int8": "openvino"}


def _images(count: int, side: int = 256) -> Tensor:
    pictures = [draw_scene(CLASSES[i % len(CLASSES)], 0, i, side) for i in range(count)]
    return torch.stack([torch.from_numpy(p).permute(2, 0, 1).float() / 255 for p in pictures])


def _contender(name: str, model: MGCAP, images: Tensor, progress: Progress) -> Callable[[], Any]:
    if name == "plain":
        networks = [copy.deepcopy(b).to(memory_format=torch.contiguous_format) for b in model.backbones]
        return lambda: [plain_logits(model, networks, image[None]) for image in images]
    engine = open_engine(
        choose_engine(str(CONTENDERS[name]), "cpu"),
        list(model.backbones),
        model.config.size,
        lambda: calibration_views(model, list(images), 0),
        progress,
    )

    def run() -> Tensor:
        model.engine = engine.features
        with torch.inference_mode():
            out: Tensor = model(images)
        return out

    return run


def bench_inference(
    config: MGCAPConfig,
    names: Sequence[str] = tuple(CONTENDERS),
    images: int = 4,
    repeats: int = 3,
    progress: Progress = silent,
    memory: bool = True,
) -> dict[str, Any]:
    """Measure contenders in turns, after a warm-up, with random weights (the time does not depend on them).

    Returns:
        Seconds per image under each name (None where it cannot run here, with the reason under ``missing``), their
        ratios to the plain port, peak memory in MiB, and what was measured.
    """
    torch.manual_seed(0)
    model = MGCAP(config).eval().requires_grad_(False)
    pictures = _images(images)
    runs: dict[str, Callable[[], Any]] = {}
    missing: dict[str, str] = {}
    for name in names:
        try:
            runs[name] = _contender(name, model, pictures, progress)
        except MgcapError as error:
            missing[name] = str(error)
    times: dict[str, list[float]] = {name: [] for name in runs}
    with progress("Measuring", len(runs) * (repeats + 1)) as step:
        for repeat in range(repeats + 1):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                if repeat:  # the first round is warm-up
                    times[name].append((time.perf_counter() - start) / images)
                step(1)
    seconds = {name: statistics.median(values) for name, values in times.items()}
    report: dict[str, Any] = {name: seconds.get(name) for name in names}
    report["spread"] = {name: [min(values), max(values)] for name, values in times.items()}
    if "plain" in seconds:
        report["speedup_over_plain"] = {name: seconds["plain"] / value for name, value in seconds.items()}
    if memory:
        report["peak_memory_mib"] = {name: _peak_memory(name, config, images) for name in runs}
    report["missing"] = missing
    report["configuration"] = config.model_dump(mode="json")
    report["images"], report["repeats"], report["threads"] = images, repeats, torch.get_num_threads()
    return report


_CHILD = """
import json, pathlib, re, resource, sys
import torch
from mgcap.config import MGCAPConfig
from mgcap.evaluation import speed
config = MGCAPConfig(**json.loads(sys.argv[2]))
torch.manual_seed(0)
model = speed.MGCAP(config).eval().requires_grad_(False)
speed._contender(sys.argv[1], model, speed._images(int(sys.argv[3])), speed.silent)()
status = pathlib.Path("/proc/self/status")  # the other figure counts what the parent had at the fork
peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text()) if status.exists() else None
print((int(peak[1]) if peak else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) // 1024)
"""


def _peak_memory(name: str, config: MGCAPConfig, images: int) -> int | None:
    """Peak resident memory of a process that runs one contender once."""
    arguments = [name, json.dumps(config.model_dump(mode="json")), str(images)]
    done = subprocess.run([sys.executable, "-c", _CHILD, *arguments], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[-1]) if done.returncode == 0 else None
