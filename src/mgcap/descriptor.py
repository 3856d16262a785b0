"""Images to vectors, in scikit-learn's sense: what is common to the estimators, and the transformer."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from mgcap.config import MGCAPConfig
from mgcap.data.stream import check_items, check_training
from mgcap.errors import ImageError, MgcapError
from mgcap.inference.descriptors import vectors
from mgcap.inference.preparation import build_model, prepare_engine
from mgcap.model import MGCAP
from mgcap.runtime import Progress, Runtime, silent
from mgcap.training.setup import DESCRIPTORS, Setup
from mgcap.training.stages import prepare_descriptor
from mgcap.typing import Array


class UnfittedError(MgcapError, NotFittedError):  # type: ignore[misc]
    """An estimator was used before it was fitted."""


class ParameterError(MgcapError, TypeError):
    """An estimator has no parameter of this name."""


class SceneEstimator(BaseEstimator):  # type: ignore[misc]
    """What scene estimators have in common: the parameters that say how descriptors are made."""

    _own: tuple[str, ...] = ("preset", "weights", "descriptor", "engine", "device", "seed", "cache", "progress")

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
        progress: Progress = silent,
        **config: Any,
    ) -> None:
        self.preset = preset
        self.weights = weights
        self.descriptor = descriptor
        self.engine = engine
        self.device = device
        self.seed = seed
        self.cache = cache
        self.progress = progress
        self.config = config
        self._check_names(config)
        self.configuration(2)  # impossible values are refused now, not after an hour
        if descriptor not in DESCRIPTORS:
            raise MgcapError(f"descriptor: '{descriptor}' is unknown; allowed are {', '.join(DESCRIPTORS)}")

    def _check_names(self, config: dict[str, Any]) -> None:
        known = [*self._own, *MGCAPConfig.model_fields]
        for name in config:
            if name not in MGCAPConfig.model_fields:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean '{close[0]}'?" if close else ""
                raise ParameterError(f"{type(self).__name__} has no parameter '{name}'{hint}")

    def configuration(self, num_classes: int) -> MGCAPConfig:
        """The configuration for a number of classes."""
        return MGCAPConfig(**{"preset": self.preset, **self.config, "num_classes": num_classes})

    def runtime(self) -> Runtime:
        """Engine, device, seed, cache and progress."""
        return Runtime(self.engine, self.device, self.seed, self.cache, self.progress)

    def setup(self) -> Setup:
        """How to train."""
        return Setup(self.weights, descriptor=self.descriptor, runtime=self.runtime())

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name, as scikit-learn's clone needs them."""
        return {**{name: getattr(self, name) for name in self._own}, **self.config}

    def set_params(self, **params: Any) -> Any:
        """Change parameters."""
        self._check_names({name: value for name, value in params.items() if name not in self._own})
        for name, value in params.items():
            if name in self._own:
                setattr(self, name, value)
            else:
                self.config = {**self.config, name: value}
        self.configuration(2)
        return self

    def _fitted(self) -> MGCAP:
        if not hasattr(self, "model_"):
            raise UnfittedError(f"this {type(self).__name__} is not fitted yet; call fit, or load a saved model")
        model: MGCAP = self.model_
        return model

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __getstate__(self) -> dict[str, Any]:
        """All but the engine, which cannot be copied: its int8 constants say how to make another."""
        state = dict(super().__getstate__())
        if "engine_" in state:
            state["engine_"] = getattr(state["engine_"], "quantisation", {})
        return state | {"progress": silent}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over a state and make the engine anew."""
        super().__setstate__(state)
        if "engine_" in state:
            self.engine_ = prepare_engine(self.model_, self.runtime(), state["engine_"] or None)

    def transform(self, X: Any) -> Array:  # noqa: N803 (scikit-learn's name)
        """Descriptors ``[n, d]`` in float32, rows of length one; the first unreadable image is an error."""
        model = self._fitted()
        items = check_items(X)
        with self.progress("Describing", len(items)) as step:
            found: Array = vectors(model, self.engine_, items, _raise, self.runtime(), step).numpy()
        return found


class SceneDescriptor(TransformerMixin, SceneEstimator):  # type: ignore[misc]
    """Images to MG-CAP descriptors: a transformer for pipelines of scikit-learn's.

    Args:
        preset: ``compact``, ``paper`` or ``authors-code``.
        weights: ``imagenet`` (fetched once, kept in the cache), a file, or ``random``.
        descriptor: ``universal`` (axes that come with the package, where there are some for the backbone) or ``own``
            (axes that are fitted to the images given to ``fit``).
        engine: What computes the backbone, see :class:`mgcap.SceneClassifier`.
        device: ``auto``, ``cpu``, ``cuda``, ...
        seed: Seed of everything random.
        cache: Keep features on disk.
        progress: Where to report progress; silent by default.
        **config: Any value of :class:`mgcap.MGCAPConfig`.

    Example:
        >>> vectors = SceneDescriptor().fit_transform(files)  # doctest: +SKIP
    """

    def fit(self, X: Any, y: Any = None) -> SceneDescriptor:  # noqa: N803 (scikit-learn's name)
        """Make the descriptor ready; with axes of its own it is fitted to these images."""
        items = check_items(X)
        check_training(items)
        setup = self.setup()
        self.model_, self.backbone_ = build_model(self.configuration(2), self.weights, setup.runtime)
        self.engine_, self.universal_ = prepare_descriptor(setup, self.model_, items)
        self.n_features_out_ = self.model_.head.in_features
        return self

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the numbers of a descriptor."""
        self._fitted()
        return np.array([f"mgcap{number}" for number in range(self.n_features_out_)], dtype=object)


def _raise(index: int, error: ImageError) -> None:
    raise error
