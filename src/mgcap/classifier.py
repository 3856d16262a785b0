"""Scene classification with scikit-learn's manners."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin

from mgcap import bundle as bundles
from mgcap._version import __version__
from mgcap.config import MGCAPConfig
from mgcap.data.imagery import Imagery, imagery_of
from mgcap.data.stream import Item, check_items, check_training
from mgcap.engines import Engine, choose_engine, open_engine
from mgcap.engines.openvino import MISFIT
from mgcap.errors import DataError, ImageError, MgcapError
from mgcap.model import MGCAP
from mgcap.models import find_model
from mgcap.progress import Progress, silent
from mgcap.storage import load_state, restore_model, to_bundle
from mgcap.training.frozen import stream_descriptors
from mgcap.training.recipe import Finetune
from mgcap.training.softmax import LAMBDAS
from mgcap.training.stages import TrainingSet, both_stages, frozen_stage, percentiles
from mgcap.weights import SOURCES, Weights, load_weights, load_weights_file

if TYPE_CHECKING:
    from mgcap.explain.explanation import Explanation

Array = np.ndarray[Any, Any]

#: In the metrics: percentiles 0 to 100 of the largest probability of training images while they were held out.
_CONFIDENCE = "held_out_confidence_percentiles"

_OWN = (
    "preset", "weights", "engine", "device", "regularisation", "seed", "cache", "finetune", "resolution", "progress",
)  # fmt: skip


class SceneClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """MG-CAP with a frozen backbone and an exact softmax head, or fine-tuned as a whole.

    Args:
        preset: ``compact``, ``paper`` or ``authors-code``.
        weights: ``imagenet`` (fetched once, kept in the cache), a file, or ``random``.
        engine: Who computes the backbone: ``auto`` (the fastest that works here), ``torch``, ``torch-compile``,
            ``openvino`` (int8) or ``openvino-fp32``.
        device: ``auto``, ``cpu``, ``cuda``, ...
        regularisation: Strength of the head's L2 term, or ``auto`` to choose it by cross-validation.
        seed: Seed of everything random.
        cache: Keep features of training images on disk, so that a killed or repeated run need not compute them again.
        finetune: Train the whole network after the head, so (a :class:`mgcap.Finetune` or its values).
        resolution: Metres per pixel of the images, if they all have the same; maps need it.
        progress: Where to report progress; silent by default.
        **config: Any value of :class:`mgcap.MGCAPConfig`.

    Images are files, ``[n, H, W, 3]`` arrays (uint8, or float in [0, 1]), ``[n, 3, H, W]`` tensors, or lists of such.

    Example:
        >>> model = SceneClassifier().fit(files, labels)  # doctest: +SKIP
        >>> model.predict(["tile.jpg"])  # doctest: +SKIP
    """

    def __init__(
        self,
        preset: str = "compact",
        *,
        weights: str | Path = "imagenet",
        engine: str = "auto",
        device: str = "auto",
        regularisation: float | str = "auto",
        seed: int = 0,
        cache: bool = True,
        finetune: Finetune | dict[str, Any] | None = None,
        resolution: float | None = None,
        progress: Progress = silent,
        **config: Any,
    ) -> None:
        self.preset = preset
        self.weights = weights
        self.engine = engine
        self.device = device
        self.regularisation = regularisation
        self.seed = seed
        self.cache = cache
        self.finetune = finetune
        self.resolution = resolution
        self.progress = progress
        self.config = config
        self.configuration(2)  # impossible values are refused now, not after an hour
        if finetune is not None:
            Finetune.model_validate(finetune)
        Imagery(resolution=resolution)

    def configuration(self, num_classes: int) -> MGCAPConfig:
        """The configuration for so many classes."""
        return MGCAPConfig(**{"preset": self.preset, **self.config, "num_classes": num_classes})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn's clone needs them."""
        return {**{name: getattr(self, name) for name in _OWN}, **self.config}

    def set_params(self, **params: Any) -> SceneClassifier:
        """Change parameters."""
        for name, value in params.items():
            if name in _OWN:
                setattr(self, name, value)
            else:
                self.config = {**self.config, name: value}
        self.configuration(2)
        return self

    # fitting

    def fit(
        self, images: Any, labels: Any, *, folder: str | Path | None = None, resume: bool = False
    ) -> SceneClassifier:
        """Train on images and their labels.

        Args:
            images: See the class. Files that cannot be read are reported in ``skipped_`` and passed over; an array
                that is no image is an error.
            labels: One label per image; any sortable values.
            folder: Takes checkpoint and logs of fine-tuning.
            resume: Go on from the checkpoint there.
        """
        items = check_items(images)
        names = np.asarray(labels)
        if len(names) != len(items):
            raise DataError(f"there are {len(items)} images but {len(names)} labels")
        classes, targets = np.unique(names, return_inverse=True)
        if len(classes) < 2:
            raise DataError(f"only the class '{classes[0]}' was given; at least two are needed")
        check_training(items)
        model, backbone = self.build_model(self.configuration(len(classes)))
        data = TrainingSet(items, targets.tolist(), [str(name) for name in classes])
        if self.finetune is None:
            found = frozen_stage(self, model, data)
        else:
            recipe = Finetune.model_validate(self.finetune)
            found = both_stages(self, model, data, recipe, Path(folder) if folder else None, resume)
            backbone = {**backbone, "stock": False, "source": f"fine-tuned from {backbone['source']}"}
        self.model_, self.backbone_, self.classes_, self.skipped_ = model, backbone, classes, found.skipped
        self.engine_, self.imagery_ = found.engine, imagery_of(items, self.resolution)
        self.regularisation_, self.cv_accuracy_ = found.regularisation, found.cv_accuracy
        self.course_ = found.course
        self.provenance_ = {
            "images": len(found.kept),
            "skipped": len(found.skipped),
            "seed": self.seed,
            "regularisation": found.regularisation,
            "weights": backbone["source"],
            "engine": found.engine.name,
            "versions": {"mgcap": __version__, "torch": torch.__version__, "python": platform.python_version()},
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        self.metrics_: dict[str, Any] = {}
        if found.course is not None:
            self.provenance_["finetune"] = recipe.model_dump(mode="json")
            self.metrics_["epochs"] = found.course.epochs
            if found.temperature is not None:
                self.metrics_["temperature"] = found.temperature
        elif self.cv_accuracy_ is not None:
            self.metrics_["cross_validated_head_accuracy_on_training_images"] = self.cv_accuracy_
        if found.held_out is not None:
            self.metrics_[_CONFIDENCE] = percentiles(found.held_out)
        return self

    def strengths(self) -> tuple[float, ...]:
        """Values of lambda to try."""
        return LAMBDAS if self.regularisation == "auto" else (float(self.regularisation),)

    def build_model(self, config: MGCAPConfig) -> tuple[MGCAP, dict[str, Any]]:
        """A model with its backbone's weights, and where those come from."""
        torch.manual_seed(self.seed)
        model = MGCAP(config).eval().requires_grad_(False)
        if self.weights == "random":
            backbone = {"name": config.backbone, "stock": False, "sha256": "", "source": "random"}
        else:
            found = _find_weights(self.weights, config.backbone, self.progress)
            load_state(model, found.state, found.source)
            stock = config.backbone in SOURCES and found.sha256 == SOURCES[config.backbone][0]
            backbone = {"name": config.backbone, "stock": stock, "sha256": found.sha256, "source": found.source}
        return model.to(_device(self.device)), backbone

    def attach_engine(self, model: MGCAP, calibration: Any) -> Engine:
        """Open the engine that was asked for, let the model use it, and return it.

        Args:
            model: Its backbones have their weights.
            calibration: For int8: gives views, or the constants of another engine; None if there are neither.
        """
        name = choose_engine(self.engine, model.head.weight.device.type, self.progress.say)
        if name == "openvino" and calibration is None:  # a model that was trained in fp32
            name = "openvino-fp32"
        networks, size = list(model.backbones), model.config.size
        try:
            engine = open_engine(name, networks, size, calibration, self.progress)
        except MgcapError:
            raise
        except Exception as error:  # whatever a converter may raise on an unusual network
            if self.engine != "auto" or name == "torch":
                raise MgcapError(f"the engine '{name}' cannot run {model.config.backbone}: {error}") from error
            self.progress.say(f"the engine '{name}' cannot run {model.config.backbone}, so torch does it ({error})")
            engine = open_engine("torch", networks, size, calibration, self.progress)
        model.engine = engine
        return engine

    # using

    def _fitted(self) -> MGCAP:
        if not hasattr(self, "model_"):
            raise MgcapError("this SceneClassifier is not fitted yet; call fit, or load a saved model")
        model: MGCAP = self.model_
        return model

    def predict_proba(self, images: Any) -> Array:
        """Probabilities ``[n, K]``, columns in the order of ``classes_``; the first unreadable image is an error."""
        return self.predict_readable(check_items(images), on_error=_raise)[1]

    def predict_readable(self, items: Sequence[Item], on_error: Any) -> tuple[list[int], Array]:
        """Like :meth:`predict_proba` for the images that can be read, with their indices; errors go to ``on_error``."""
        model = self._fitted()
        with self.progress("Classifying", len(items)) as step:
            kept: list[int] = []
            parts = [np.empty((0, len(self.classes_)))]
            for indices, rows in stream_descriptors(model, items, on_error, step):
                kept += indices
                parts.append(model.head(rows).double().softmax(1).cpu().numpy())
        return kept, np.concatenate(parts)

    def predict(self, images: Any) -> Array:
        """The most probable class of each image."""
        proba = self.predict_proba(images)
        labels: Array = self.classes_[proba.argmax(1)]
        return labels

    def explain(self, image: Item, target: str | None = None, contrast: str | None = None) -> Explanation:
        """Why an image is called what it is called: canonical appearances, votes and heat maps.

        Args:
            image: A file or an array.
            target: The class to speak for; the most probable one by default.
            contrast: A class to speak against.

        Returns:
            Arrays, and a figure by its ``figure()``.
        """
        from mgcap.explain.explanation import explain_image

        self._fitted()
        return explain_image(self, image, target, contrast)

    def reject_threshold(self, rate: float) -> float:
        """The largest probability below which an image counts as unknown.

        Args:
            rate: Share of images of known classes that may be rejected; the threshold is that quantile of the largest
                probability of the training images while they were held out in cross-validation.
        """
        self._fitted()
        if not 0 < rate < 1:
            raise MgcapError(f"the rate of false rejections must lie between 0 and 1, not {rate}")
        percentiles = self.metrics_.get(_CONFIDENCE)
        if not percentiles:
            how = "--validation 0.1" if "finetune" in self.provenance_ else "--regularisation auto"
            raise MgcapError(f"this model knows no held-out confidence; train it with {how}")
        return float(np.interp(rate, np.linspace(0, 1, len(percentiles)), percentiles))

    def score(self, images: Any, labels: Any, sample_weight: Any = None) -> float:
        """Accuracy on images that training should not have seen."""
        right = self.predict(images) == np.asarray(labels)
        return float(np.average(right, weights=sample_weight))

    # files

    def save(self, path: str | Path) -> None:
        """Write the model to one file (see :mod:`mgcap.bundle`)."""
        self._fitted()
        bundles.write_bundle(path, *to_bundle(self))

    @classmethod
    def load(
        cls, path: str | Path, device: str = "auto", engine: str = "auto", progress: Progress = silent
    ) -> SceneClassifier:
        """Read a model that :meth:`save` wrote, or one that comes with the package by its name.

        A stock backbone comes from the cache or is fetched.
        """
        found = bundles.read_bundle(find_model(path))
        config = found.config
        given = config.model_dump(include=config.model_fields_set - {"preset", "num_classes"})
        self = cls(config.preset, device=device, engine=engine, progress=progress, **given)
        model, int8 = restore_model(found, path, progress)
        self.model_ = model.to(_device(device))
        self.engine_ = self._open_loaded_engine(model, int8)
        self.backbone_, self.classes_ = found.backbone, np.array(found.classes)
        self.provenance_, self.metrics_, self.skipped_ = found.provenance, found.metrics, []
        self.imagery_ = Imagery.model_validate(found.imagery)
        self.resolution = self.imagery_.resolution
        return self

    def _open_loaded_engine(self, model: MGCAP, int8: dict[str, torch.Tensor]) -> Engine:
        """The engine of a loaded model: int8 if it was trained so and the same versions are here."""
        try:
            engine = self.attach_engine(model, int8 or None)
        except MgcapError as error:
            if self.engine != "auto" or str(error) != MISFIT:
                raise
            self.progress.say(f"{error}; fp32 is used")
            engine = self.attach_engine(model, None)
        if int8 and engine.name != "openvino" and self.engine == "auto":
            self.progress.say("this model was trained with int8 features; fp32 is used here, which may differ a little")
        return engine


load = SceneClassifier.load


def _raise(index: int, error: ImageError) -> None:
    raise error


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise MgcapError(f"the device '{name}' cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def _find_weights(weights: str | Path, backbone: str, progress: Progress) -> Weights:
    if str(weights) == "imagenet":
        return load_weights(backbone, progress.say)
    return load_weights_file(weights, backbone)
