"""What <TAB> offers for the value of an option, and which values there are.

Nothing here imports torch, so the names of registries stand here once more, and a test compares them. Where nothing
fits, the shell offers files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from mgcap.cli.console import fail
from mgcap.errors import did_you_mean
from mgcap.persistence.shipped import shipped_models

Offer = Callable[[str], list[str]]

PRESETS = ("compact", "tiny", "paper", "authors-code")
BACKBONES = (
    "vgg16", "vgg19", "alexnet", "googlenet", "inception_v3", "resnet18", "resnet34", "resnet50", "resnet50-v1",
    "mobilenet_v2",
)  # fmt: skip
NORMALISATIONS = ("bilinear", "log", "sqrt")
DESCRIPTORS = ("universal", "own")
ENGINES = ("auto", "torch", "torch-compile", "openvino", "openvino-fp32")
DEVICES = ("auto", "cpu", "cuda")
#: Suffixes of files with weights.
WEIGHTS = (".safetensors", ".pth", ".pt", ".h5")
EXPORTS = ("onnx", "openvino", "pt2")
STUDIES = (
    "granularities", "rotations", "normalisation", "embedding", "rotation_pooling", "feature_norm", "activated",
    "vector", "gradient",
)  # fmt: skip
#: Methods and families; those whose names have commas cannot be given.
METHODS = (
    "all", "handcrafted", "mid-level", "MG-CAP",
    "colour", "colour-rbf", "lbp", "lbp-rbf", "gist", "gist-rbf", "sift-bovw", "sift-spm", "sift-llc", "alexnet-svm",
    "googlenet-svm", "vgg16-svm", "gap-vgg16", "gap-resnet50", "isqrt-cov", "idccp-vgg16", "mscp-alexnet",
    "mscp-mra-alexnet", "mscp-vgg16", "mscp-mra-vgg16", "alexnet-bovw", "googlenet-bovw", "vgg16-bovw",
    "alexnet-tuned-svm", "dcnn-alexnet", "googlenet-tuned-svm", "dcnn-googlenet", "vgg16-tuned-svm", "dcnn-vgg16",
    "rtn-alexnet", "rtn-vgg16", "mgcap-bilinear", "mgcap-log", "mgcap-sqrt", "mgcap-compact",
)  # fmt: skip


def one_of(values: Iterable[str], suffixes: tuple[str, ...] = ()) -> Offer:
    """Offer values, and the files with one of some suffixes."""
    known = list(values)

    def offer(incomplete: str) -> list[str]:
        return [v for v in known if v.startswith(incomplete)] + (_files(incomplete, suffixes) if suffixes else [])

    return offer


def only(values: Sequence[str]) -> dict[str, Any]:
    """For an option that takes nothing but these values: offer them, and refuse others before any work."""

    def check(context: typer.Context, parameter: typer.CallbackParam, value: str) -> str:
        if value not in values and not context.resilient_parsing:
            *first, last = (f"'{known}'" for known in values)
            hint, known = did_you_mean(value, values), f"{', '.join(first)} or {last}"
            fail(f"{parameter.opts[0]}: '{value}' is unknown{hint}; allowed are {known}")
        return value

    return {"autocompletion": one_of(values), "callback": check}


def several_of(values: Iterable[str]) -> Offer:
    """Offer values for the last part of a list with commas, but for those that it has."""
    known = list(values)

    def offer(incomplete: str) -> list[str]:
        *before, last = incomplete.split(",")
        return [",".join([*before, v]) for v in known if v.startswith(last) and v not in before]

    return offer


def assigned(names: Mapping[str, str], but: Iterable[str] = ()) -> Callable[[str], list[tuple[str, str]]]:
    """Offer ``NAME=`` with the description of each, as zsh and fish show it."""
    known = [(f"{name}=", text) for name, text in names.items() if name not in but]

    def offer(incomplete: str) -> list[tuple[str, str]]:
        return [(name, text) for name, text in known if name.startswith(incomplete)]

    return offer


def models(incomplete: str) -> list[str]:
    """Offer the models that come with the package, and model files."""
    return one_of(shipped_models(), (".mgcap",))(incomplete)


def _files(incomplete: str, suffixes: tuple[str, ...]) -> list[str]:
    """Files that begin so, named as they were begun."""
    folder = incomplete[: incomplete.rfind("/") + 1]
    try:
        names = sorted(p.name for p in Path(folder or ".").expanduser().iterdir() if p.suffix in suffixes)
    except (OSError, RuntimeError):  # there is no such folder, or user
        return []
    return [folder + name for name in names if (folder + name).startswith(incomplete)]
