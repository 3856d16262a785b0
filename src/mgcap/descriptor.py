"""Images to vectors, in scikit-learn's sense: what is common to the estimators, and the transformer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import InputTags, Tags, TransformerTags

from mgcap.config import MGCAPConfig
from mgcap.data.stream import check_items, check_training
from mgcap.errors import ImageError, MgcapError, check_parameters
from mgcap.inference.descriptors import vectors
from mgcap.inference.engines import Engine, is_stale
from mgcap.inference.preparation import build_model, prepare_engine, reopen_engine
from mgcap.model import MGCAP
from mgcap.progress_bars import as_progress
from mgcap.runtime import Progress, Runtime
from mgcap.training.setup import Setup
from mgcap.training.stages import prepare_descriptor
from mgcap.typing import Array

#: Values of the configuration that estimators take; the preset has those that are None.
VALUES = tuple(name for name in MGCAPConfig.model_fields if name != "preset")


class UnfittedError(MgcapError, NotFittedError):  # type: ignore[misc]
    """An estimator was used before it was fitted."""


def names_values(constructor: Callable[..., None]) -> Callable[..., None]:
    """Put every value of the configuration in a constructor's signature: scikit-learn and editors look there."""
    own = inspect.signature(constructor)
    named = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
    named += [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in VALUES]
    constructor.__signature__ = own.replace(parameters=named)  # type: ignore[attr-defined]
    return constructor


class SceneEstimator(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What scene estimators have in common: the parameters that say how descriptors are made."""

    _engine: Engine

    @names_values
    def __init__(
        self,
        preset: str = "compact",
        *,
        weights: str | Path = "imagenet",
        descriptor: str = "universal",
        engine: str = "auto",
        device: str = "auto",
        seed: int = 0,
        cache: bool = True,
        progress: bool | Progress = False,
        **config: Any,
    ) -> None:
        self._check_names(config)
        self.preset = preset
        self.weights = weights
        self.descriptor = descriptor
        self.engine = engine
        self.device = device
        self.seed = seed
        self.cache = cache
        self.progress = progress
        for name in VALUES:
            setattr(self, name, config.get(name))

    def _check_names(self, names: Iterable[str]) -> None:
        check_parameters(type(self).__name__, names, self._get_param_names())

    def configuration(self, num_classes: int) -> MGCAPConfig:
        """The configuration for a number of classes.

        Raises:
            ValuesError: With one sentence, if a value is impossible.
        """
        given = {name: value for name in VALUES if (value := getattr(self, name)) is not None}
        return MGCAPConfig(**{"preset": self.preset, **given, "num_classes": num_classes})

    def runtime(self) -> Runtime:
        """Engine, device, seed, cache and progress."""
        return Runtime(self.engine, self.device, self.seed, self.cache, as_progress(self.progress))

    def setup(self) -> Setup:
        """How to train."""
        return Setup(self.weights, descriptor=self.descriptor, runtime=self.runtime())

    def set_params(self, **params: Any) -> Any:
        """Change parameters; their values are looked at by ``fit``."""
        self._check_names(params)
        return super().set_params(**params)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = InputTags(one_d_array=True, two_d_array=False, three_d_array=True, string=True)
        tags.transformer_tags = TransformerTags(preserves_dtype=[])
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def _fitted(self) -> MGCAP:
        if not hasattr(self, "model_"):
            raise UnfittedError(f"this {type(self).__name__} is not fitted yet; call fit, or load a saved model")
        model: MGCAP = self.model_
        return model

    @property
    def engine_(self) -> Engine:
        """What computes the backbone; opened again where the model's weights were changed or moved since."""
        if is_stale(self._engine, self.model_):
            self._engine = reopen_engine(self._engine, self.model_, self.runtime())
        return self._engine

    @engine_.setter
    def engine_(self, engine: Engine) -> None:
        self._engine = engine

    def __getstate__(self) -> dict[str, Any]:
        """All but the engine, which cannot be copied: its int8 constants say how to make another."""
        state = dict(super().__getstate__())
        if "_engine" in state:
            state["_engine"] = getattr(self.engine_, "quantisation", {})
        return state | {"progress": self.progress is True}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a state and make the engine anew."""
        super().__setstate__(state)
        if "_engine" in state:
            self.engine_ = prepare_engine(self.model_, self.runtime(), state["_engine"] or None)

    def transform(self, X: Any) -> Array:  # noqa: N803 (scikit-learn's name)
        """Descriptors ``[n, d]`` in float32, rows of length one; the first unreadable image is an error."""
        model = self._fitted()
        items = check_items(X)
        runtime = self.runtime()
        with runtime.progress("Describing", len(items)) as step:
            found: Array = vectors(model, self.engine_, items, _raise, runtime, step)[1].numpy()
        return found

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the numbers of a descriptor."""
        return np.array([f"mgcap{number}" for number in range(self._fitted().head.in_features)], dtype=object)


class SceneDescriptor(SceneEstimator):
    """Images to MG-CAP descriptors: a transformer for pipelines of scikit-learn's.

    Args:
        preset: ``compact``, ``tiny``, ``paper`` or ``authors-code``.
        weights: ``imagenet`` (fetched once, kept in the cache), a file, or ``random``.
        descriptor: ``universal`` (axes that come with the package, where there are some for the backbone) or ``own``
            (axes that are fitted to the images given to ``fit``).
        engine: What computes the backbone, see :class:`mgcap.SceneClassifier`.
        device: ``auto``, ``cpu``, ``cuda``, ...
        seed: Seed of everything random.
        cache: Keep features on disk.
        progress: True for bars on standard error, or an object like :class:`mgcap.runtime.Progress`.
        **config: Any value of :class:`mgcap.MGCAPConfig`; those that are None come from the preset.

    Images are given as to :class:`mgcap.SceneClassifier`.

    Example:
        >>> vectors = SceneDescriptor().fit_transform(files)  # doctest: +SKIP
    """

    def fit(self, X: Any, y: Any = None) -> SceneDescriptor:  # noqa: N803 (scikit-learn's name)
        """Make the descriptor ready; with axes of its own it is fitted to these images."""
        setup, config = self.setup(), self.configuration(2)
        setup.check()
        items = check_items(X)
        check_training(items)
        self.model_, self.backbone_ = build_model(config, self.weights, setup.runtime)
        self.engine_, self.universal_ = prepare_descriptor(setup, self.model_, items)
        self.n_features_out_ = self.model_.head.in_features
        return self


def _raise(index: int, error: ImageError) -> None:
    raise error
