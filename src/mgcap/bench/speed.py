"""Seconds per image and peak memory of the plain port and of each engine, in one run.

Each contender lives in a process of its own, so that none profits from what another set (the torch engine changes how
memory is kept, for one), and they run in turns, so that a noisy machine disturbs all alike.
"""

from __future__ import annotations

import copy
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mgcap.bench.plain import plain_logits
from mgcap.config import MGCAPConfig
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.errors import MgcapError
from mgcap.inference.calibration import calibration_views
from mgcap.inference.descriptors import stream_answers
from mgcap.inference.engines import Engine, choose_engine, open_engine
from mgcap.inference.fingerprints import rule_fingerprints
from mgcap.inference.preparation import build_model
from mgcap.model import MGCAP
from mgcap.runtime import Progress, Runtime, silent

#: Name in the report -> engine; the plain port has none.
CONTENDERS = {"plain": None, "torch": "torch", "openvino_fp32": "openvino-fp32", "openvino_int8": "openvino"}


def drawn_images(count: int, side: int = 256) -> list[Tensor]:
    """Synthetic scenes ``[3, side, side]`` in [0, 1]."""
    pictures = [draw_scene(CLASSES[i % len(CLASSES)], 0, i, side) for i in range(count)]
    return [torch.from_numpy(p).permute(2, 0, 1).float() / 255 for p in pictures]


def random_model(config: MGCAPConfig) -> MGCAP:
    """A model with random weights: the time does not depend on them."""
    return build_model(config, "random", Runtime(device="cpu"))[0]


def ready_engine(model: MGCAP, name: str, images: Sequence[Tensor]) -> Engine:
    """Open an engine, calibrated on the images if it is int8."""
    return open_engine(
        choose_engine(name, "cpu"),
        list(model.backbones),
        model.config.size,
        lambda: calibration_views(model, images[:1], 0),  # the time does not depend on the constants
        code=rule_fingerprints(model.config).get("backbone", ""),
    )


def contender(name: str, config: MGCAPConfig, count: int) -> Callable[[], Any]:
    """A function that classifies ``count`` images."""
    model, images = random_model(config), drawn_images(count)
    if name == "plain":
        networks = [copy.deepcopy(b).to(memory_format=torch.contiguous_format) for b in model.backbones]
        return lambda: [plain_logits(model, networks, image[None]) for image in images]
    engine = ready_engine(model, str(CONTENDERS[name]), images)
    return lambda: list(stream_answers(model, engine, images, lambda i, e: None))


def peak_memory_mib() -> int:
    """Peak resident memory of this process; 0 where the system does not say."""
    status = Path("/proc/self/status")  # the other figure counts what the parent had at the fork
    peak = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    if peak:
        return int(peak[1]) // 1024
    try:
        import resource
    except ImportError:  # Windows
        return 0
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest // (1 << 20 if sys.platform == "darwin" else 1 << 10)


def serve_contender(name: str, config: str, count: int) -> None:
    """The child's side: make ready, then run once for each line on standard input and answer with one line."""
    try:
        run = contender(name, MGCAPConfig(**json.loads(config)), count)
    except MgcapError as error:
        _answer({"missing": str(error)})
        return
    _answer({"ready": True})
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        seconds = (time.perf_counter() - start) / count
        _answer({"seconds": seconds, "memory": peak_memory_mib()})


def _answer(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


class _Child:
    def __init__(self, name: str, config: MGCAPConfig, count: int) -> None:
        code = "import sys; from mgcap.bench.speed import serve_contender as s; s(*sys.argv[1:3], int(sys.argv[3]))"
        given = [name, json.dumps(config.model_dump(mode="json")), str(count)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith("{"):
                found: dict[str, Any] = json.loads(line)
                return found
        return {"missing": f"the process ended with code {self.process.wait()}"}

    def run(self) -> dict[str, Any]:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def bench_inference(
    config: MGCAPConfig,
    names: Sequence[str] = tuple(CONTENDERS),
    images: int = 4,
    repeats: int = 3,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Measure contenders in turns, after a warm-up, with random weights (the time does not depend on them).

    Returns:
        Seconds per image under each name (None where it cannot run here, with the reason under ``missing``), their
        ratios to the plain port, peak memory in MiB, and what was measured.
    """
    missing: dict[str, str] = {}
    children: dict[str, _Child] = {}
    times: dict[str, list[float]] = {}
    memory: dict[str, int] = {}
    try:
        with progress("Measuring", len(names) * (repeats + 2)) as step:
            for name in names:
                child = _Child(name, config, images)
                if "missing" in (said := child.answer()):
                    missing[name] = said["missing"]
                    child.end()
                else:
                    children[name], times[name] = child, []
                step(1)
            for repeat in range(repeats + 1):
                for name, child in children.items():
                    said = child.run()
                    if "missing" in said:
                        raise MgcapError(f"measuring '{name}' failed: {said['missing']}")
                    if repeat:  # the first round is warm-up
                        times[name].append(said["seconds"])
                    memory[name] = said["memory"]
                    step(1)
    finally:
        for child in children.values():
            child.end()
    seconds = {name: statistics.median(values) for name, values in times.items()}
    report: dict[str, Any] = {name: seconds.get(name) for name in names}
    report["spread"] = {name: [min(values), max(values)] for name, values in times.items()}
    if "plain" in seconds:
        report["speedup_over_plain"] = {name: seconds["plain"] / value for name, value in seconds.items()}
    if "torch" in seconds:
        report["speedup_over_torch"] = {name: seconds["torch"] / value for name, value in seconds.items()}
    report["peak_memory_mib"] = memory
    report["missing"] = missing
    report["configuration"] = config.model_dump(mode="json")
    report["images"], report["repeats"], report["threads"] = images, repeats, torch.get_num_threads()
    return report
