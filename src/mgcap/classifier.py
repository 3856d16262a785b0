"""Scene classification: an estimator with the API of scikit-learn."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin

from mgcap._version import __version__
from mgcap.data.imagery import Imagery, imagery_of
from mgcap.data.stream import Item, check_items, check_training
from mgcap.descriptor import SceneEstimator, _raise
from mgcap.errors import DataError, MgcapError
from mgcap.inference.descriptors import stream_answers
from mgcap.inference.engines import Engine
from mgcap.inference.engines.openvino import MISFIT
from mgcap.inference.preparation import build_model, prepare_engine
from mgcap.model import MGCAP
from mgcap.persistence import bundle as bundles
from mgcap.persistence.shipped import find_model
from mgcap.persistence.storage import restore_model, to_bundle
from mgcap.runtime import Progress, silent
from mgcap.training.recipe import Finetune
from mgcap.training.setup import Setup
from mgcap.training.stages import TrainingSet, both_stages, frozen_stage, percentiles
from mgcap.typing import Array

if TYPE_CHECKING:
    from mgcap.explain.explanation import Explanation


#: In the metrics: percentiles 0 to 100 of the largest probability of training images while they were held out.
_CONFIDENCE = "held_out_confidence_percentiles"
_CV_ACCURACY = "cross_validated_head_accuracy_on_training_images"


class SceneClassifier(ClassifierMixin, SceneEstimator):  # type: ignore[misc]
    """MG-CAP with a frozen backbone and an exact softmax head, or fine-tuned as a whole.

    Args:
        preset: ``compact``, ``paper`` or ``authors-code``.
        weights: ``imagenet`` (fetched once, kept in the cache), a file, or ``random``.
        descriptor: ``universal`` (axes that ship with the package, where it has some for the backbone) or ``own`` (axes
            that are fitted to the training images).
        engine: What computes the backbone: ``auto`` (the fastest that works here), ``torch``, ``torch-compile``,
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

    _own = (*SceneEstimator._own, "regularisation", "finetune", "resolution")

    def __init__(
        self,
        preset: str = "compact",
        *,
        weights: str | Path = "imagenet",
        descriptor: str = "universal",
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
        self.regularisation = regularisation
        self.finetune = finetune
        self.resolution = resolution
        super().__init__(
            preset,
            weights=weights,
            descriptor=descriptor,
            engine=engine,
            device=device,
            seed=seed,
            cache=cache,
            progress=progress,
            **config,
        )
        if finetune is not None:
            Finetune.model_validate(finetune)
        Imagery(resolution=resolution)

    def setup(self) -> Setup:
        """How to train."""
        recipe = None if self.finetune is None else Finetune.model_validate(self.finetune)
        return Setup(self.weights, self.regularisation, recipe, self.runtime(), self.descriptor)

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
        setup = self.setup()
        model, backbone = build_model(self.configuration(len(classes)), self.weights, setup.runtime)
        data = TrainingSet(items, targets.tolist(), [str(name) for name in classes])
        if setup.finetune is None:
            found = frozen_stage(setup, model, data)
        else:
            found = both_stages(setup, model, data, Path(folder) if folder else None, resume)
            backbone = {**backbone, "stock": False, "source": f"fine-tuned from {backbone['source']}"}
        self.model_, self.backbone_, self.classes_, self.skipped_ = model, backbone, classes, found.skipped
        self.engine_, self.imagery_ = found.engine, imagery_of(items, self.resolution)
        self.file_: Path | None = None
        self.regularisation_, self.cv_accuracy_ = found.regularisation, found.cv_accuracy
        self.course_ = found.course
        self.provenance_ = {
            "images": len(found.kept),
            "skipped": len(found.skipped),
            "seed": self.seed,
            "regularisation": found.regularisation,
            "weights": backbone["source"],
            "engine": found.engine.name,
            "descriptor": "own" if found.universal is None else found.universal.provenance(),
            "versions": {"mgcap": __version__, "torch": torch.__version__, "python": platform.python_version()},
            "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        }
        self.metrics_: dict[str, Any] = {}
        if found.course is not None and setup.finetune is not None:
            self.provenance_["finetune"] = setup.finetune.model_dump(mode="json")
            self.metrics_["epochs"] = found.course.epochs
            if found.temperature is not None:
                self.metrics_["temperature"] = found.temperature
        elif self.cv_accuracy_ is not None:
            self.metrics_[_CV_ACCURACY] = self.cv_accuracy_
        if found.held_out is not None:
            self.metrics_[_CONFIDENCE] = percentiles(found.held_out)
        return self

    # using

    def predict_proba(self, images: Any) -> Array:
        """Probabilities ``[n, K]``, columns in the order of ``classes_``; the first unreadable image is an error."""
        return self.predict_readable(check_items(images), on_error=_raise)[1]

    def predict_readable(self, items: Sequence[Item], on_error: Any) -> tuple[list[int], Array]:
        """Like :meth:`predict_proba` for the images that can be read, with their indices; errors go to ``on_error``."""
        model = self._fitted()
        with self.progress("Classifying", len(items)) as step:
            kept: list[int] = []
            parts = [np.empty((0, len(self.classes_)))]
            for indices, answer in stream_answers(model, self.engine_, items, on_error, step):
                kept += indices
                parts.append(answer.probabilities.cpu().numpy())
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
        """Write the model to one file (see :mod:`mgcap.persistence.bundle`)."""
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
        self.model_ = model.to(self.runtime().torch_device())
        self.engine_ = self._open_loaded_engine(model, int8)
        self.backbone_, self.classes_ = found.backbone, found.labels()
        self.provenance_, self.metrics_, self.skipped_ = found.provenance, found.metrics, []
        self.regularisation_ = found.provenance.get("regularisation")
        self.cv_accuracy_ = found.metrics.get(_CV_ACCURACY)
        self.course_, self.file_ = None, Path(path)
        self.imagery_ = Imagery.model_validate(found.imagery)
        self.resolution = self.imagery_.resolution
        return self

    def _open_loaded_engine(self, model: MGCAP, int8: dict[str, torch.Tensor]) -> Engine:
        """The engine of a loaded model: int8 if it was trained so and the same versions are here."""
        try:
            engine = prepare_engine(model, self.runtime(), int8 or None)
        except MgcapError as error:
            if self.engine != "auto" or str(error) != MISFIT:
                raise
            self.progress.say(f"{error}; fp32 is used")
            engine = prepare_engine(model, self.runtime(), None)
        if int8 and engine.name != "openvino" and self.engine == "auto":
            self.progress.say("this model was trained with int8 features; fp32 is used here, which may differ a little")
        return engine


load = SceneClassifier.load
