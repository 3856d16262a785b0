"""Does int8 work on this machine? Tried once in a child process, because where it does not, the process dies.

Some virtual machines advertise AMX but cannot run it: the first int8 operation of oneDNN then ends the process with
SIGILL. If the child is killed, the instruction set is capped by ``ONEDNN_MAX_CPU_ISA`` and it is tried again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from mgcap.persistence.files import atomic_path, cache_dir

VARIABLE = "ONEDNN_MAX_CPU_ISA"
#: Tried in this order after the machine's own choice.
CAPS = ("AVX10_1_512", "AVX512_CORE_VNNI", "AVX2_VNNI", "AVX2")
TIMEOUT_SECONDS = 120.0

#: Two int8 convolutions and a comparison with numpy-made fp32; any wrong number counts as a failure.
_CHILD = """
import sys
sys.modules["openvino_telemetry"] = None
import numpy as np
import openvino as ov
from openvino import opset13 as ops
rng = np.random.default_rng(0)
def quantised(node, low, high, levels):
    low, high = np.float32(low), np.float32(high)
    return ops.fake_quantize(node, low, high, low, high, levels)
source = ops.parameter([4, 64, 28, 28], np.float32)
node = source
for _ in range(2):
    weight = ops.constant(rng.uniform(-0.1, 0.1, (64, 64, 3, 3)).astype(np.float32))
    node = ops.relu(ops.convolution(quantised(node, 0, 4, 256), quantised(weight, -0.1, 0.1, 255), *[[1, 1]] * 4))
out = ov.Core().compile_model(ov.Model([node], [source]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})(
    [rng.uniform(0, 4, (4, 64, 28, 28)).astype(np.float32)]
)[0]
sys.exit(0 if np.isfinite(out).all() and out.std() > 0 else 3)
"""

#: A product and a convolution in bf16.
_BF16_CHILD = """
import torch
a = torch.ones(64, 64, dtype=torch.bfloat16)
with torch.autocast("cpu", torch.bfloat16):
    b = torch.nn.Conv2d(16, 16, 3)(torch.ones(1, 16, 32, 32))
raise SystemExit(0 if float((a @ a).sum()) == 64.0**3 and bool(b.isfinite().all()) else 3)
"""


@dataclass(frozen=True)
class Verdict:
    """What the probe found.

    Attributes:
        works: Whether int8 can be used.
        cap: Value for ``ONEDNN_MAX_CPU_ISA``, or empty for the machine's own choice.
        story: What happened, in one line.
    """

    works: bool
    cap: str
    story: str


def available_cores() -> int:
    """How many cores this process may use: those that the system gives it, or ``$MGCAP_THREADS``."""
    if (given := os.environ.get("MGCAP_THREADS", "")).isdigit() and int(given) > 0:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def _machine() -> str:
    """A fingerprint of this machine and these versions."""
    info = Path("/proc/cpuinfo")
    flags = ""
    if info.exists():
        lines = info.read_text().splitlines()
        flags = "".join(next((line for line in lines if line.startswith(k)), "") for k in ("model name", "flags"))
    version = importlib.metadata.version("openvino")
    return hashlib.sha256(f"{platform.machine()} {flags} {version} {_CHILD}".encode()).hexdigest()[:16]


def _try(cap: str, code: str = "") -> int:
    environment = {**os.environ, VARIABLE: cap} if cap else dict(os.environ)
    try:
        return subprocess.run(
            [sys.executable, "-c", code or _CHILD],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 1


def probe_int8(attempt: Callable[[str], int] = _try) -> Verdict:
    """Try int8, capped if need be."""
    own = os.environ.get(VARIABLE, "")
    first = attempt(own)
    if first == 0:
        return Verdict(True, own, "int8 works" + (f" with {VARIABLE}={own}" if own else ""))
    died = f"signal {-first}" if first < 0 else f"exit code {first}"
    for cap in CAPS:
        if attempt(cap) == 0:
            return Verdict(True, cap, f"int8 died with {died} and works with {VARIABLE}={cap}")
    return Verdict(False, "", f"int8 died with {died} whatever the instruction set, so fp32 is used")


def bf16_works() -> bool:
    """Whether torch can compute in bf16 on this processor; tried in a child process, which may die of it."""
    return _try(os.environ.get(VARIABLE, ""), _BF16_CHILD) == 0


def fast_bf16() -> bool:
    """Whether this processor has instructions for bf16, and torch can use them; elsewhere it would be slow."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text() if info.exists() else ""
    return ("avx512_bf16" in flags or "amx_bf16" in flags) and bf16_works()


def int8_verdict(again: bool = False, say: Callable[[str], None] = lambda line: None) -> Verdict:
    """The remembered verdict for this machine and these versions; the probe's, the first time or when asked ``again``.

    Sets ``ONEDNN_MAX_CPU_ISA`` for this process if a cap is needed.
    """
    path = cache_dir() / "probe" / f"{_machine()}.json"
    verdict: Verdict | None = None
    if not again:
        try:
            verdict = Verdict(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):
            verdict = None
    if verdict is None:
        verdict = probe_int8()
        if verdict.cap or not verdict.works:
            say(verdict.story)
        try:
            with atomic_path(path) as temporary:
                temporary.write_text(json.dumps(asdict(verdict)))
        except OSError:
            pass  # the answer is only forgotten
    if verdict.works and verdict.cap:
        os.environ[VARIABLE] = verdict.cap
    return verdict
