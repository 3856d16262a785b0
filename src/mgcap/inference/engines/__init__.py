"""Engines that compute the backbone: torch, or OpenVINO in fp32 or int8; and which of them to use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from torch import Tensor, nn

from mgcap.errors import MgcapError, did_you_mean
from mgcap.inference.engines.torch import Stamp, TorchEngine, weight_stamp
from mgcap.model import MGCAP, FeatureEngine
from mgcap.runtime import Progress, silent

#: What ``engine`` takes; ``openvino`` is int8.
ENGINES = ("auto", "torch", "torch-compile", "openvino", "openvino-fp32")

#: Gives normalised views ``[n, 3, size, size]`` to calibrate on, most useful first.
Calibration = Callable[[], Sequence[Tensor]]


class Engine(FeatureEngine, Protocol):
    """Computes local features of views that are normalised in colour."""

    name: str
    fingerprint: str  #: what the numbers depend on besides the networks and their weights
    overlaps: bool  #: whether it has threads of its own, so that torch can work meanwhile
    made_from: Stamp  #: the weights that it was made from

    def resized(self, size: int) -> Engine:
        """The same networks for square views of another side."""


def is_stale(engine: Engine, model: MGCAP) -> bool:
    """Whether a model's weights were changed, loaded or moved since an engine was made from them."""
    return engine.made_from != weight_stamp(model.backbones)


def check_current(engine: Engine, model: MGCAP) -> None:
    """See that an engine was made from the weights that a model has now.

    Raises:
        MgcapError: If they were changed, loaded or moved since.
    """
    if is_stale(engine, model):
        raise MgcapError(
            "the model's weights were changed or moved after its engine was prepared; open the engine again"
        )


def choose_engine(name: str, device: str, say: Callable[[str], None] = lambda line: None) -> str:
    """The engine that ``auto`` stands for here: int8 where OpenVINO and NNCF are installed and were shown to work.

    Raises:
        MgcapError: If the engine is unknown, or cannot be used here.
    """
    from mgcap.inference.engines import openvino, probe

    if name not in ENGINES:
        hint = did_you_mean(name, ENGINES)
        raise MgcapError(f"the engine '{name}' is unknown{hint}; allowed are {', '.join(ENGINES)}")
    if name.startswith("torch"):
        return name
    if name == "auto" and device != "cpu":
        return "torch"
    if device != "cpu":
        raise MgcapError(f"the engine '{name}' runs on the CPU only; use `engine=torch` with `device={device}`")
    missing = openvino.missing_packages(int8=name != "openvino-fp32")
    if missing:
        if name == "auto":
            return "torch"
        raise MgcapError(f"the engine '{name}' needs {' and '.join(missing)}: pip install 'mgcap[cpu]'")
    if name == "openvino-fp32":
        return name
    if probe.int8_verdict(say=say).works:
        return "openvino"
    if name == "auto":
        return "torch"
    raise MgcapError("int8 was tried in a child process and does not work on this machine; use `engine=openvino-fp32`")


def open_engine(
    name: str,
    backbones: Sequence[nn.Module],
    size: int,
    calibration: Calibration | dict[str, Tensor],
    progress: Progress = silent,
    code: str = "",
) -> Engine:
    """Make an engine ready.

    Args:
        name: What :func:`choose_engine` gave.
        backbones: One network for all granularities, or one for each.
        size: Side of a view.
        calibration: For int8: gives views, or what an earlier engine learnt from views.
        progress: Where to report.
        code: Fingerprint of what builds the networks, where that may change.
    """
    if name.startswith("torch"):
        return TorchEngine(backbones, compiled=name == "torch-compile")
    from mgcap.inference.engines.openvino import OpenVinoEngine

    return OpenVinoEngine(backbones, size, calibration if name == "openvino" else None, progress, code)
