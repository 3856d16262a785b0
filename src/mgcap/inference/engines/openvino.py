"""The OpenVINO engine: fp32, or int8 by post-training quantisation with NNCF."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import importlib.metadata
import importlib.util
import logging
import math
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from mgcap.backbones.pretrained import state_hash
from mgcap.errors import BundleError
from mgcap.inference.engines.probe import available_cores
from mgcap.inference.engines.torch import fold_batch_norms, weight_stamp
from mgcap.persistence.files import atomic_path, cache_dir, sha256_of
from mgcap.runtime import Progress

if TYPE_CHECKING:
    from mgcap.inference.engines import Calibration

#: Views that the quantisation looks at.
CALIBRATION_VIEWS = 64
#: The most views in one request, and requests under way at once.
REQUEST_VIEWS, REQUESTS = 4, 2
#: The most pixels in one request, if there is more than one view in it.
REQUEST_PIXELS = 4 << 18
#: Sides of views, besides its own, that an engine is ready for at the same time. Each takes hundreds of megabytes, and
#: a moment to make.
SIZES_KEPT = 1

#: For each distinct network, in order, the small constants of its int8 graph.
Constants = dict[str, Tensor]

#: Name of the hash in the file of kept constants.
_HASH = "mgcap.sha256"
MISFIT = "the model's quantisation was made by other versions of openvino and nncf"


def quiet_openvino() -> Any:
    """Import OpenVINO with its telemetry, and NNCF's, switched off: both send usage data by default."""
    os.environ.setdefault("NNCF_CI", "1")
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # its importers fall back to a stub
    import openvino

    return openvino


def versions() -> str:
    """What an int8 graph depends on besides the network."""
    present = [name for name in ("openvino", "nncf") if importlib.util.find_spec(name) is not None]
    return " ".join(f"{name} {importlib.metadata.version(name)}" for name in present)


def missing_packages(int8: bool) -> list[str]:
    """Which of the packages that the engine needs are not installed."""
    needed = ("openvino", "nncf") if int8 else ("openvino",)
    return [name for name in needed if importlib.util.find_spec(name) is None]


class OpenVinoEngine:
    """Runs the networks on the CPU, several requests at a time.

    Args:
        backbones: One network for all granularities, or one for each.
        size: Side of a view.
        calibration: Views to quantise with, or the :attr:`quantisation` of another engine; None for fp32.
        progress: Where to report.
        code: Fingerprint of what builds the networks, where that may change: int8 graphs are kept.

    Attributes:
        quantisation: The constants that the calibration found, for each distinct network: with them any machine
            with the same versions makes the same int8 model. Empty in fp32.
    """

    overlaps = True

    def __init__(
        self,
        backbones: Sequence[nn.Module],
        size: int,
        calibration: Calibration | Constants | None,
        progress: Progress,
        code: str = "",
    ) -> None:
        quiet_openvino()
        self.name = "openvino-fp32" if calibration is None else "openvino"
        self.made_from = weight_stamp(backbones)
        self.quantisation: Constants = {}
        self._code = code
        self.queues: list[Any] = []
        self._models: list[Any] = []  # the network of each queue
        self._resized: dict[int, OpenVinoEngine] = {}
        distinct: dict[str, Any] = {}
        try:
            for backbone in backbones:
                fingerprint = state_hash(backbone.state_dict())
                if fingerprint not in distinct:
                    model = self._prepared(fold_batch_norms(backbone).cpu().float(), size, calibration, progress)
                    distinct[fingerprint] = model, _queue(model)
                self._models.append(distinct[fingerprint][0])
                self.queues.append(distinct[fingerprint][1])
        except Exception as error:  # constants of a stranger may be anything
            if not isinstance(calibration, dict):
                raise
            raise BundleError(MISFIT) from error
        if isinstance(calibration, dict) and calibration.keys() != self.quantisation.keys():
            raise BundleError(MISFIT)
        learnt = hashlib.sha256(b"".join(t.numpy().tobytes() for t in self.quantisation.values())).hexdigest()[:16]
        self.fingerprint = f"{self.name} {versions()}" + (f" {learnt}" if self.quantisation else "")

    def resized(self, size: int) -> OpenVinoEngine:
        """The same networks for square views of another side; the last few are kept."""
        if size not in self._resized:
            while len(self._resized) >= SIZES_KEPT:
                self._resized.pop(next(iter(self._resized)))
            other = copy.copy(self)
            distinct: dict[int, Any] = {}
            for model in self._models:
                if id(model) not in distinct:
                    larger = model.clone()
                    larger.reshape([-1, 3, size, size])
                    distinct[id(model)] = _queue(larger)
            other.queues = [distinct[id(model)] for model in self._models]
            self._resized[size] = other
        return self._resized[size]

    def _prepared(
        self, network: nn.Module, size: int, calibration: Calibration | Constants | None, progress: Progress
    ) -> Any:
        if calibration is None:
            return _converted(network, size)
        key = str(len(self.quantisation))
        given = {key: calibration[key]} if isinstance(calibration, dict) else calibration
        with progress("Preparing int8", None):
            model, self.quantisation[key] = quantised(network, size, given, self._code)
        return model

    @torch.inference_mode()
    def features(self, views: Tensor, granularity: int) -> Tensor:
        """``[n, 3, h, w] -> [n, C, N]`` in float32."""
        queue = self.queues[granularity if len(self.queues) > 1 else 0]
        array = views.float().contiguous().numpy()
        together = max(1, REQUEST_PIXELS // array[0, 0].size)
        size = request_size(len(array), len(queue), together)
        shape = queue[0].model_outputs[0].get_partial_shape()
        found = np.empty([len(array), *(side.get_length() for side in list(shape)[1:])], np.float32)

        def keep(request: Any, start: int) -> None:
            found[start : start + size] = request.get_output_tensor(0).data

        queue.set_callback(keep)
        for start in range(0, len(array), size):
            queue.start_async({0: array[start : start + size]}, start)
        queue.wait_all()
        return torch.from_numpy(found).flatten(2)


def _queue(model: Any) -> Any:
    """Requests to a network, several at a time."""
    ov = quiet_openvino()
    threads = available_cores()
    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "THROUGHPUT",
        "NUM_STREAMS": str(min(REQUESTS, threads)),
        "INFERENCE_NUM_THREADS": str(threads),
    }
    return ov.AsyncInferQueue(ov.Core().compile_model(model, "CPU", options), min(REQUESTS, threads))


def request_size(views: int, requests: int, largest: int = REQUEST_VIEWS) -> int:
    """Views in one request, so that all of those under way at once end together: of 12 views 3, not 4."""
    sizes = range(min(REQUEST_VIEWS, largest, views), 0, -1)
    return next((size for size in sizes if math.ceil(views / size) % requests == 0), 1)


def _converted(network: nn.Module, size: int) -> Any:
    ov = quiet_openvino()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # views have one size, so what depends on it may become constant
        return ov.convert_model(network, example_input=torch.zeros(1, 3, size, size), input=[-1, 3, size, size])


def quantised(network: nn.Module, size: int, given: Calibration | Constants, code: str = "") -> tuple[Any, Tensor]:
    """The int8 model of a network and its constants; both are kept in the cache."""
    ov = quiet_openvino()
    folder = cache_dir() / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    base = f"{state_hash(network.state_dict())} {network!r} {size} {versions()}{code}"
    model = None
    if isinstance(given, dict):
        (constants,) = given.values()
        views: Sequence[Tensor] = [torch.zeros(3, size, size)]  # the graph is the same whatever the views
    else:
        views = given()
        key = hashlib.sha256(base.encode() + b"".join(v.contiguous().numpy().tobytes() for v in views)).hexdigest()
        kept = folder / f"{key[:32]}.safetensors"
        found = _kept_constants(kept)
        if found is not None:
            constants = found
        else:
            model = _quantise(network, size, views)
            small = [node.data.astype(np.float32).reshape(-1) for node in _small_constant_nodes(model)]
            constants = torch.from_numpy(np.concatenate(small))
            with atomic_path(kept) as temporary:
                save_file({"constants": constants}, temporary, {_HASH: state_hash({"constants": constants})})
    path = folder / f"{hashlib.sha256(base.encode() + constants.numpy().tobytes()).hexdigest()[:32]}.xml"
    if _is_whole(path):
        return ov.Core().read_model(path), constants
    if model is None:
        model = _quantise(network, size, views)
        _set_small_constants(model, constants.numpy())
    with tempfile.TemporaryDirectory(dir=folder) as name:
        made = Path(name) / path.name
        ov.save_model(model, made, compress_to_fp16=False)
        made.with_suffix(".sha256").write_text(_graph_hash(made))
        for suffix in (".bin", ".sha256", ".xml"):  # the .xml goes last: where it is, the others are too
            made.with_suffix(suffix).replace(path.with_suffix(suffix))
    return model, constants


def _kept_constants(path: Path) -> Tensor | None:
    """Constants that an earlier calibration found; None if there are none, or they are damaged."""
    try:
        with safe_open(path, "pt") as file:
            constants: Tensor = file.get_tensor("constants")
            whole = (file.metadata() or {}).get(_HASH) == state_hash({"constants": constants})
    except (OSError, SafetensorError):
        return None
    return constants if whole else None


def _graph_hash(path: Path) -> str:
    """SHA-256 of a graph and its numbers."""
    return sha256_of(path) + sha256_of(path.with_suffix(".bin"))


def _is_whole(path: Path) -> bool:
    """Whether a kept graph is there and undamaged."""
    try:
        return path.with_suffix(".sha256").read_text() == _graph_hash(path)
    except (OSError, UnicodeDecodeError):
        return False


def _quantise(network: nn.Module, size: int, views: Sequence[Tensor]) -> Any:
    quiet_openvino()
    import nncf

    logging.getLogger("nncf").setLevel(logging.ERROR)
    with Path(os.devnull).open("w") as nothing, contextlib.redirect_stdout(nothing):
        return nncf.quantize(
            _converted(network, size),
            nncf.Dataset([view.unsqueeze(0).numpy() for view in views]),
            subset_size=len(views),
            preset=nncf.QuantizationPreset.MIXED,
            model_type=nncf.ModelType.TRANSFORMER if getattr(network, "attends", False) else None,
        )


def _small_constant_nodes(model: Any) -> list[Any]:
    """Quantisation ranges and biases, in the order of the graph: all float constants but the kernels."""
    return [
        node
        for node in model.get_ordered_ops()
        if node.get_type_name() == "Constant"
        and node.get_element_type().to_dtype() == np.float32
        and sum(side > 1 for side in node.get_output_shape(0)) <= 1
    ]


def _set_small_constants(model: Any, values: np.ndarray[Any, Any]) -> None:
    ov = quiet_openvino()
    offset = 0
    for node in _small_constant_nodes(model):
        shape = node.data.shape
        count = int(np.prod(shape))
        if offset + count > len(values):
            raise BundleError(MISFIT)
        fresh = ov.opset13.constant(values[offset : offset + count].reshape(shape))
        for target in node.output(0).get_target_inputs():
            target.replace_source_output(fresh.output(0))
        offset += count
    if offset != len(values):
        raise BundleError(MISFIT)
