"""Scene classification: an estimator with the API of scikit-learn."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin

from mgcap.data.imagery import Imagery, imagery_of
from mgcap.data.samples import Samples
from mgcap.data.stream import Item, check_items
from mgcap.descriptions import values_checked
from mgcap.descriptor import SceneEstimator, _raise, names_values
from mgcap.errors import MgcapError
from mgcap.inference.descriptors import Predicted, cached_answers, predicted, stream_answers
from mgcap.inference.preparation import backbone_record, build_model, open_loaded_engine
from mgcap.model import MGCAP, UNFITTED_PCA
from mgcap.persistence import bundle as bundles
from mgcap.persistence.shipped import find_model
from mgcap.persistence.storage import SavedMixin, restore_examples, restore_model, restore_sample, to_bundle
from mgcap.progress_bars import as_progress
from mgcap.runtime import Progress
from mgcap.training import provenance
from mgcap.training.labels import LabelError, label_array, labelled
from mgcap.training.recipe import Finetune
from mgcap.training.setup import Setup
from mgcap.training.stages import both_stages, frozen_stage
from mgcap.typing import Array
from mgcap.uncertainty import UncertaintyMixin

if TYPE_CHECKING:
    from mgcap.explain.explanation import Explanation


class SceneClassifier(SavedMixin, UncertaintyMixin, ClassifierMixin, SceneEstimator):  # type: ignore[misc]
    """MG-CAP with a frozen backbone and an exact softmax head, or fine-tuned as a whole.

    Args:
        preset: ``compact``, ``tiny``, ``paper`` or ``authors-code``.
        weights: ``imagenet`` (fetched once, kept in the cache), a file, or ``random``.
        descriptor: ``universal`` (axes that ship with the package, where it has some for the backbone) or ``own`` (axes
            that are fitted to the training images).
        engine: What computes the backbone: ``auto`` (the fastest that works here), ``torch``, ``torch-compile``,
            ``openvino`` (int8) or ``openvino-fp32``.
        device: ``auto``, ``cpu``, ``cuda``, ...
        regularisation: Strength of the head's L2 term, or ``auto`` to choose it by cross-validation.
        class_weight: What the images of a class count in the exact head: ``balanced`` (every class the same), a weight
            for each class by its label, or None.
        composed: About how many windows of scenes composed of the images the exact head learns from as well; they are
            as a raster's cells are, not centred and of several classes at once. The head is then solved in the numbers
            that an index keeps of descriptors.
        seed: Seed of everything random.
        cache: Keep features of images on disk, where ``fit``, ``predict``, ``score`` and ``transform`` find them again.
        finetune: Train the whole network after the head, so (a :class:`mgcap.Finetune` or its values).
        resolution: Metres per pixel of the images, if they all have the same; maps need it.
        progress: True for bars on standard error, or an object like :class:`mgcap.runtime.Progress`.
        **config: Any value of :class:`mgcap.MGCAPConfig`; those that are None come from the preset.

    Images are files, ``[n, H, W, 3]`` arrays (uint8, or float in [0, 1]), ``[n, 3, H, W]`` tensors, or lists of such; a
    ``Dataset`` or ``DataLoader`` of torch; or a list of samples like TorchGeo's, ``{"image": ..., "label": ...}``.

    Unknown names are refused at once; values are looked at by ``fit``, before any image is.

    Example:
        >>> model = SceneClassifier().fit(files, labels)  # doctest: +SKIP
        >>> model.predict(["tile.jpg"])  # doctest: +SKIP
    """

    @names_values
    def __init__(
        self,
        preset: str = "compact",
        *,
        weights: str | Path = "imagenet",
        descriptor: str = "universal",
        engine: str = "auto",
        device: str = "auto",
        regularisation: float | str = "auto",
        class_weight: str | Mapping[Any, float] | None = None,
        composed: int = 0,
        keep_descriptors: bool = True,
        seed: int = 0,
        cache: bool = True,
        finetune: Finetune | dict[str, Any] | None = None,
        resolution: float | None = None,
        progress: bool | Progress = False,
        **config: Any,
    ) -> None:
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
        self.regularisation = regularisation
        self.class_weight = class_weight
        self.composed, self.keep_descriptors = composed, keep_descriptors
        self.finetune = finetune
        self.resolution = resolution

    def setup(self) -> Setup:
        """How to train; an impossible value of ``finetune`` is a ``ValuesError``."""
        with values_checked("finetune: ", Finetune.model_fields):
            recipe = None if self.finetune is None else Finetune.model_validate(self.finetune)
        return Setup(self.weights, self.regularisation, recipe, self.runtime(), self.descriptor, self.composed)

    def fit(
        self,
        X: Any,  # noqa: N803 (scikit-learn's name)
        y: Any = None,
        sample_weight: Any = None,
        *,
        folder: str | Path | None = None,
        resume: bool = False,
    ) -> SceneClassifier:
        """Train on images and their labels.

        Args:
            X: Images, see the class. Files that cannot be read are reported in ``skipped_``; an array that is no image
                is an error.
            y: One label per image: text, integers, floats or truth values. A dataset may have them itself.
            sample_weight: What each image counts in the exact head. A weight of two is the same as to give the image
                twice, and of zero as to leave it out; axes that are fitted to the images know no weights.
            folder: Takes checkpoint and logs of fine-tuning.
            resume: Resume from the checkpoint there.
        """
        setup = self.setup()
        setup.check()
        self.configuration(2)
        with values_checked():
            Imagery(resolution=self.resolution)
        if setup.finetune is not None and not (sample_weight is None and self.class_weight is None):
            name = "class_weight" if sample_weight is None else "sample_weight"
            raise LabelError(f"{name} is for the exact head alone; with finetune, give class_weights in its recipe")
        data, classes, members = labelled(X, y, sample_weight, self.class_weight)
        model, backbone = build_model(self.configuration(len(classes)), self.weights, setup.runtime)
        if setup.finetune is None:
            found = frozen_stage(setup, model, data)
        else:
            found = both_stages(setup, model, data, Path(folder) if folder else None, resume)
            backbone = {**backbone, "stock": False, "source": f"fine-tuned from {backbone['source']}"}
        assert found.engine is not None
        self.model_, self.backbone_, self.classes_ = model, backbone, classes
        self.skipped_ = [(int(members[i]), error) for i, error in found.skipped]
        self.engine_, self.imagery_ = found.engine, imagery_of(data.items, self.resolution)
        self._set_file(None)
        self.regularisation_, self.cv_accuracy_ = found.regularisation, found.cv_accuracy
        self.history_, self.sample_ = found.history, found.sample
        self.examples_ = found.examples if self.keep_descriptors else None
        weighted = data.weights is not None
        self.provenance_ = provenance.provenance_of(
            setup, found, backbone, weighted, self.class_weight, classes.tolist()
        )
        self.metrics_ = provenance.metrics_of(found)
        return self

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """Probabilities ``[n, K]`` in the order of ``classes_``; the first unreadable image is an error.

        They are exact: computed from the pixels, not from the cache.
        """
        self._fitted()
        return self.predict_readable(check_items(X), on_error=_raise, keep=False).probabilities

    def predict_readable(self, items: Sequence[Item], on_error: Any, keep: bool = True) -> Predicted:
        """Like :meth:`predict_proba` for the images that can be read; errors go to ``on_error``.

        With ``keep`` and ``cache`` features come from the disk or go there, in half precision, so probabilities may
        differ in the fourth digit; not those of a network that was fine-tuned, which nobody else has.
        """
        model, runtime = self._fitted(), self.runtime()
        keep = keep and self.cache and "finetune" not in self.provenance_ and model.mean.dtype == torch.float32
        with runtime.progress("Classifying", len(items)) as step:
            given = model, self.engine_, items, on_error
            blocks = cached_answers(*given, runtime, step) if keep else stream_answers(*given, step)
            return predicted(blocks, model, self.sample_)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The most probable class of each image; features come from the cache or go there, as those of ``fit``."""
        self._fitted()
        found = self.predict_readable(check_items(X), on_error=_raise)  # the rounding of rows hardly changes a label
        labels: Array = self.classes_[found.probabilities.argmax(1)]
        return labels

    def explain(self, image: Item, target: str | None = None, contrast: str | None = None) -> Explanation:
        """Why an image is called what it is called: canonical appearances, votes and heat maps, and their ``figure()``.

        Args:
            image: A file or an array.
            target: The class to show evidence for; the most probable one by default.
            contrast: A class to show evidence against.
        """
        from mgcap.explain.explanation import explain_image

        self._fitted()
        return explain_image(self, image, target, contrast)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Accuracy on images that training should not have seen; a dataset may have the labels itself."""
        images = check_items(X)
        labels = images.labels() if y is None and isinstance(images, Samples) else y
        right = self.predict(images) == label_array(labels)
        return float(np.average(right, weights=sample_weight))

    def save(self, path: str | Path) -> None:
        """Write the model to one file (see :mod:`mgcap.persistence.bundle`), which ``file_`` names from then on."""
        model = self._fitted()
        if model.mean.dtype != torch.float32:
            raise MgcapError("a model is saved in float32; call model_.float() before")
        if self.backbone_["stock"] and not backbone_record(model, "")["stock"]:  # other weights were loaded since
            self.backbone_ = backbone_record(model, f"changed from {self.backbone_['source']}")
        bundles.write_bundle(path, *to_bundle(self))
        self._set_file(Path(path))

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: str = "auto",
        engine: str = "auto",
        progress: bool | Progress = False,
        cache: bool = True,
    ) -> SceneClassifier:
        """Read a model that :meth:`save` wrote, or one that comes with the package by its name.

        A stock backbone comes from the cache or is fetched. Its parameters are those that it was trained with, as far
        as the file says: of a weights file it has the name alone.
        """
        file = find_model(path)
        found = bundles.read_bundle(file)
        model, int8 = restore_model(found, path, as_progress(progress))
        labels = found.labels()
        given = provenance.given_parameters(found.provenance, labels.tolist())
        self = cls._around(model, labels, device=device, engine=engine, progress=progress, cache=cache, **given)
        self.model_ = model.to(self.runtime().torch_device())
        self.engine_ = open_loaded_engine(model, self.runtime(), int8)
        self.backbone_, self.provenance_, self.metrics_ = found.backbone, found.provenance, found.metrics
        self.sample_, self.examples_ = restore_sample(found, path, model), restore_examples(found, path, model)
        self.regularisation_ = found.provenance.get("regularisation")
        self.cv_accuracy_ = found.metrics.get(provenance.CV_ACCURACY)
        self.imagery_ = Imagery.model_validate(found.imagery)
        self.resolution = self.imagery_.resolution
        self._set_file(file)
        return self

    @classmethod
    def from_model(
        cls, model: MGCAP, classes: Any, *, engine: str = "auto", resolution: float | None = None, side: int = 256
    ) -> SceneClassifier:
        """A classifier around a copy of a torch module that was trained elsewhere; it can be saved, mapped and served.

        Args:
            model: With its trained head, and a PCA that is fitted.
            classes: The label of each logit, in their order.
            engine: What computes the backbone.
            resolution: Metres per pixel of the training images; maps need it.
            side: Of the training images in pixels.

        Raises:
            LabelError: If the labels are not those of the logits.
            MgcapError: If the PCA is not fitted, or the images cannot have that resolution or side.
        """
        labels = label_array(classes)
        if len(labels) != model.config.num_classes or len(set(labels.tolist())) != len(labels):
            raise LabelError(f"classes: give {model.config.num_classes} different labels, one for each logit")
        if model.config.reduction == "pca" and not bool(model.reduction.fitted):
            raise MgcapError(UNFITTED_PCA)
        model = copy.deepcopy(model).eval().requires_grad_(False)
        self = cls._around(model, labels, device=str(model.mean.device), engine=engine, resolution=resolution)
        self.model_, self.engine_ = model, open_loaded_engine(model, self.runtime(), {})
        self.backbone_ = backbone_record(model, "a torch module")
        self.provenance_ = {"weights": self.backbone_["source"], "engine": self.engine_.name, **provenance.made()}
        self.metrics_, self.regularisation_, self.cv_accuracy_ = {}, None, None
        with values_checked():
            self.imagery_ = Imagery(side=side, resolution=resolution)
        self._set_file(None)
        return self

    @classmethod
    def _around(cls, model: MGCAP, classes: Array, **parameters: Any) -> SceneClassifier:
        """An estimator whose parameters are those of a model."""
        self = cls(model.config.preset, **parameters, **model.config.given())
        self.classes_, self.skipped_, self.history_ = classes, [], None
        self.sample_, self.examples_ = None, None
        return self


load = SceneClassifier.load
