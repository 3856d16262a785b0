"""The whole model, image to probabilities, for other runtimes: ONNX, OpenVINO and torch's own format.

One graph with any number of images of one size. The spectral layer is the Newton-Schulz iteration, which needs matrix
products only; what was written is opened again and compared with the model before it gets its name.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap._version import __version__
from mgcap.data.stream import Item, image_batches
from mgcap.errors import DataError, MgcapError, did_you_mean
from mgcap.inference.forward import answer, see
from mgcap.model import MGCAP
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier

Run = Callable[[Array], Array]

#: Suffix of each format.
FORMATS = {"onnx": ".onnx", "openvino": ".xml", "pt2": ".pt2"}
#: How much probabilities of random images may differ between the model and what was exported.
TOLERANCE = 1e-3
INPUT, OUTPUT = "images", "probabilities"


class WholeModel(nn.Module):
    """Images ``[B, 3, side, side]``, RGB in [0, 1], to probabilities ``[B, K]``: all of :class:`MGCAP` in one graph."""

    def __init__(self, model: MGCAP) -> None:
        super().__init__()
        if model.config.normalisation == "sqrt" and model.config.spectral_scale == "none":
            config = model.config.replace(spectral_method="newton-schulz", gradient="exact")
        elif model.config.normalisation == "bilinear":
            config = model.config
        else:
            raise MgcapError(
                "only models with normalisation sqrt (spectral_scale none) or bilinear can be exported: "
                "others need an eigendecomposition, which other runtimes have not got"
            )
        self.model = MGCAP(config)
        self.model.load_state_dict({name: tensor.cpu() for name, tensor in model.state_dict().items()})
        self.model.eval().requires_grad_(False)
        self._granularities = range(len(config.granularities))

    def forward(self, images: Tensor) -> Tensor:
        """Probabilities."""
        seen = see(self.model, ([self._features(images, g)] for g in self._granularities))
        return answer(self.model, seen).logits.softmax(1)

    def _features(self, images: Tensor, granularity: int) -> Tensor:
        # as `MGCAP.features_at`, but in one go: a graph for any number of images cannot hold the parts that save memory
        model, config = self.model, self.model.config
        views = model.views_at(images, granularity, config.angles)
        backbone = model.backbones[granularity if len(model.backbones) > 1 else 0]
        features: Tensor = backbone(views.flatten(0, 1)).flatten(2)
        return features.reshape(-1, config.rotations, *features.shape[1:])


def metadata(classifier: SceneClassifier, side: int) -> dict[str, str]:
    """What a runtime must know: classes, preprocessing, and the keys that the QGIS plugin Deepness reads."""
    classes = [str(name) for name in classifier.classes_]
    imagery = classifier.imagery_
    found = {
        "mgcap_version": __version__,
        "classes": json.dumps(classes),
        "preprocessing": json.dumps(
            {
                "input": INPUT,
                "layout": "NCHW",
                "colour": "RGB",
                "range": [0, 1],
                "divide_by": imagery.white,
                "side": side,
            }
        ),
        "provenance": json.dumps(classifier.provenance_),
        # names of the QGIS plugin Deepness; it has no kind of model that names whole tiles
        "model_type": json.dumps("Classification"),
        "class_names": json.dumps({str(number): name for number, name in enumerate(classes)}),
        "tiles_size": json.dumps(side),
        "tiles_overlap": json.dumps(0),
        "standardization_mean": json.dumps([0.0, 0.0, 0.0]),
        "standardization_std": json.dumps([1.0, 1.0, 1.0]),
    }
    if imagery.resolution is not None:
        found["resolution"] = json.dumps(100 * imagery.resolution)  # centimetres per pixel
    return found


def check_format(form: str, path: Path) -> None:
    """See that there is a format, and that a file may have its name.

    Raises:
        DataError: If not.
    """
    if form not in FORMATS:
        raise DataError(f"the format '{form}' is unknown{did_you_mean(form, FORMATS)}; there are {', '.join(FORMATS)}")
    if path.suffix != FORMATS[form]:
        raise DataError(f"{form} is written to a {FORMATS[form]} file, not to {path}")


def export_model(classifier: SceneClassifier, form: str, path: Path, side: int | None = None) -> float:
    """Write the model in another format and check it.

    Args:
        classifier: Fitted or loaded.
        form: ``onnx``, ``openvino`` or ``pt2``.
        path: The file; OpenVINO writes a ``.bin`` beside the ``.xml``.
        side: Of the images it will take; by default that of the training images.

    Returns:
        The largest difference of probabilities between the model and what was written, on random images.
    """
    check_format(form, path)
    side = side or classifier.imagery_.side
    whole = WholeModel(classifier.model_)
    example = torch.rand(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    notes = metadata(classifier, side)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        inner = Path(folder) / path.name
        with torch.no_grad(), _quiet():
            _WRITERS[form](whole, example, inner, notes)
            run = open_exported(inner)
            images = torch.rand(3, 3, side, side, generator=torch.Generator().manual_seed(1))
            worst = float(np.abs(run(images.numpy()) - whole(images).numpy()).max())
        if not worst <= TOLERANCE:
            raise MgcapError(f"the exported model differs from the model by {worst:.2g}, so it was thrown away")
        for file in sorted(Path(folder).iterdir(), reverse=True):  # the .xml after its .bin
            shutil.move(file, path.parent / file.name)
    return worst


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Exporters talk much."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    logging.getLogger("onnxscript").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


def _exported(whole: WholeModel, example: Tensor) -> torch.export.ExportedProgram:
    batch = {"images": {0: torch.export.Dim("batch", min=1, max=1024)}}
    return torch.export.export(whole, (example,), dynamic_shapes=batch, strict=False)


def _write_pt2(whole: WholeModel, example: Tensor, path: Path, notes: dict[str, str]) -> None:
    torch.export.save(_exported(whole, example), path, extra_files={"mgcap.json": json.dumps(notes)})


def _write_onnx(whole: WholeModel, example: Tensor, path: Path, notes: dict[str, str]) -> None:
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MgcapError("this format needs more packages: pip install 'mgcap[export]'") from error
    program = torch.onnx.export(
        _exported(whole, example), (), input_names=[INPUT], output_names=[OUTPUT], dynamo=True, verbose=False
    )
    assert program is not None
    program.model.metadata_props.update(notes)
    program.save(str(path), external_data=False)


def _write_openvino(whole: WholeModel, example: Tensor, path: Path, notes: dict[str, str]) -> None:
    from mgcap.inference.engines.openvino import quiet_openvino

    ov = quiet_openvino()
    plain = path.with_suffix(".onnx")  # by way of ONNX, which both sides know well
    _write_onnx(whole, example, plain, notes)
    model = ov.convert_model(plain)
    for name, value in notes.items():
        model.set_rt_info(value, ["mgcap", name])
    ov.save_model(model, path, compress_to_fp16=False)
    plain.unlink()


_WRITERS: dict[str, Callable[[WholeModel, Tensor, Path, dict[str, str]], None]] = {
    "onnx": _write_onnx,
    "openvino": _write_openvino,
    "pt2": _write_pt2,
}


def open_exported(path: Path) -> Run:
    """A function from images ``[n, 3, side, side]`` to probabilities, by the runtime of an exported file."""
    if path.suffix == ".pt2":
        module = torch.export.load(path).module()
        return lambda images: np.asarray(module(torch.from_numpy(images)).detach())
    if path.suffix == ".onnx":
        try:
            import onnxruntime
        except ImportError as error:
            raise MgcapError("running ONNX files needs onnxruntime: pip install 'mgcap[export]'") from error
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return lambda images: np.asarray(session.run([OUTPUT], {INPUT: images})[0])
    from mgcap.inference.engines.openvino import quiet_openvino

    ov = quiet_openvino()
    compiled = ov.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda images: np.asarray(compiled({0: images})[0])


def agreement(
    classifier: SceneClassifier,
    run: Run,
    items: Sequence[Item],
    side: int,
    step: Callable[[int], None] = lambda n: None,
) -> float:
    """The part of images on which an exported model and the torch model (fp32) name the same class.

    Args:
        classifier: With the torch engine.
        run: What :func:`open_exported` gave.
        items: Images; those of another size are resized for both.
        side: Of the images that the exported model takes.
        step: Called with the number of images done.
    """
    same = total = 0
    model = classifier.model_
    for indices, images in image_batches(items, 4, lambda i, error: None):
        if images.shape[-2:] != (side, side):
            images = F.interpolate(images, (side, side), mode="bilinear", antialias=True).clamp(0, 1)
        with torch.no_grad():
            own = model(images.to(model.mean.device)).argmax(1).cpu().numpy()
        same += int((run(images.numpy()).argmax(1) == own).sum())
        total += len(indices)
        step(len(indices))
    if not total:
        raise DataError("none of the images can be read")
    return same / total
