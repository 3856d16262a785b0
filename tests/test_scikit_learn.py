"""scikit-learn's own checks of estimators.

They feed rows of numbers, so the estimators here are ours with one thing before them: a row becomes an image.
"""

# ruff: noqa: N803

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn.utils import InputTags, Tags, get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import validate_data

from mgcap import MGCAPConfig, SceneClassifier, SceneDescriptor

SIDE = 32
#: Of a network that is run in no time.
SMALL: dict[str, Any] = {
    "weights": "random", "engine": "torch", "cache": False, "backbone": "alexnet", "layer": "conv2",
    "reduction": "learnt", "channels": 6, "size": SIDE, "rotations": 1, "granularities": 1.0,
}  # fmt: skip


class _Rows:
    """Takes rows of numbers: each number is a stripe, the darker the smaller it is."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags = InputTags()  # rows; of anything else scikit-learn skips nearly all of its checks
        return tags

    def drawn(self, X: Any, reset: bool = False) -> Any:
        if not reset:
            self._fitted()  # type: ignore[attr-defined]
        rows = np.asarray(validate_data(self, X, reset=reset, dtype=np.float64))
        grey = 1 / (1 + np.exp(-np.clip(rows, -50, 50)))
        stripes = grey[:, np.arange(SIDE) * rows.shape[1] // SIDE]
        ramp = np.linspace(0.2, 1, SIDE)[:, None]  # or shifts of the stripes would look alike
        return np.repeat((stripes[:, None, :] * ramp)[..., None], 3, axis=3).astype(np.float32)

    def transform(self, X: Any) -> Any:
        return super().transform(self.drawn(X))  # type: ignore[misc]


class RowClassifier(_Rows, SceneClassifier):
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return super().fit(self.drawn(X, reset=True), y, sample_weight)

    def predict_proba(self, X: Any) -> Any:
        return super().predict_proba(self.drawn(X))

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(1)] if self.__sklearn_is_fitted__() else self._fitted()

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        return float(np.average(self.predict(X) == y, weights=sample_weight))


class RowDescriptor(_Rows, SceneDescriptor):
    def fit(self, X: Any, y: Any = None) -> Any:
        return super().fit(self.drawn(X, reset=True), y)


#: Checks that must not pass, and why.
EXCUSED = {
    "check_classifiers_regression_target": "numbers such as 0.5 are names of classes here",
    "check_sample_weight_equivalence_on_dense_data": "asks for nine digits of float32; see training/test_softmax.py",
    "check_methods_subset_invariance": "asks for seven digits of float32, whose rounding depends on the batch",
}


@parametrize_with_checks(
    [RowClassifier(**SMALL, regularisation=1e-3), RowDescriptor(**SMALL)],
    expected_failed_checks=lambda estimator: EXCUSED if isinstance(estimator, RowClassifier) else {},
)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_tags_say_what_images_are() -> None:
    for estimator in (SceneClassifier(), SceneDescriptor()):
        tags = get_tags(estimator)
        assert not tags.input_tags.two_d_array and tags.input_tags.one_d_array and tags.input_tags.string
        assert tags.requires_fit and not tags.non_deterministic and tags.transformer_tags.preserves_dtype == []
    assert get_tags(SceneClassifier()).estimator_type == "classifier"
    assert get_tags(SceneClassifier()).classifier_tags.multi_class


def test_every_value_of_the_configuration_is_a_parameter() -> None:
    names = set(MGCAPConfig.model_fields)
    assert names <= set(SceneClassifier().get_params()) and names <= set(SceneDescriptor().get_params())
    assert "rotations" in inspect.signature(SceneClassifier).parameters
    assert repr(SceneClassifier(rotations=3)) == "SceneClassifier(rotations=3)"
