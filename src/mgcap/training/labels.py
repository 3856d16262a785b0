"""Labels and weights of training images, as they are given: checked, and by number."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import DataConversionWarning
from torch import Tensor

from mgcap.data.samples import Samples, part_of
from mgcap.data.stream import check_items, check_training
from mgcap.errors import DataError
from mgcap.training.setup import TrainingSet
from mgcap.typing import Array

_TYPES = ((bool | np.bool_, "bool"), (str, "text"), (numbers.Integral, "int"), (numbers.Real, "float"))


class LabelError(DataError, ValueError):
    """Labels or weights cannot be used; a ``ValueError`` too, as scikit-learn asks for it."""


class Labelled(NamedTuple):
    """Images to learn from."""

    data: TrainingSet
    classes: Array  #: the classes as they were given, sorted
    members: Array  #: which of the images these are: all but those of weight zero


def labelled(items: Any, labels: Any, sample_weight: Any = None, class_weight: Any = None) -> Labelled:
    """Check images with their labels and weights.

    Args:
        items: Images; a dataset may have the labels.
        labels: One for each image, or None.
        sample_weight: What each image counts; one of weight zero might as well not be there.
        class_weight: ``balanced``, the weight of each class by its label (1 where it has none), or None.

    Raises:
        DataError: With one sentence, if they do not fit together.
    """
    items = check_items(items)
    if labels is None:
        if not isinstance(items, Samples):
            raise LabelError(
                "training requires y to be passed, but the target y is None; give labels, or a dataset that has some"
            )
        labels = items.labels()
    names = label_array(labels)
    if len(names) != len(items):
        raise LabelError(f"there are {len(items)} images but {len(names)} labels")
    members, weights = np.arange(len(items)), None
    if sample_weight is not None:
        weights = _weight_array(sample_weight, len(items))
        members = np.flatnonzero(weights)
        weights = weights[members]
        if len(members) < len(items):
            items, names = part_of(items, members.tolist()), names[members]
    classes, targets = np.unique(names, return_inverse=True)
    if len(classes) < 2:
        raise LabelError(f"only the class '{classes[0]}' was given; one class is not enough, give at least two")
    if class_weight is not None:
        weights = np.ones(len(names)) if weights is None else weights
        weights = weights * _class_weights(class_weight, classes, np.bincount(targets, weights))[targets]
    check_training(items)
    counted = None if weights is None else weights.tolist()
    return Labelled(TrainingSet(items, targets.tolist(), [str(name) for name in classes], counted), classes, members)


def label_array(labels: Any) -> Array:
    """Labels as an array of text, integers, floats or truth values.

    Raises:
        LabelError: If they are anything else, of several types, missing, or no list.
    """
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    try:
        array = np.asarray(labels)
    except ValueError as error:
        raise LabelError("labels must be a list of text or numbers, one for each image") from error
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn("A column-vector y was passed when a 1d array was expected", DataConversionWarning, stacklevel=4)
        array = array.ravel()
    if array.ndim != 1:
        raise LabelError(f"labels must be a list, one for each image; y should be a 1d array, not {array.ndim}d")
    if array.dtype.kind not in "biufU" or isinstance(labels, list | tuple):
        given = labels if isinstance(labels, list | tuple) and array.shape == (len(labels),) else array.tolist()
        values = [label.item() if isinstance(label, Tensor) else label for label in given]
        _check_types(values)
        array = np.array(values)
    if array.dtype.kind == "U" and (array == "").any():
        raise LabelError(f"label {int(np.flatnonzero(array == '')[0])} is empty, which names no class")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        index = int(np.flatnonzero(~np.isfinite(array))[0])
        raise LabelError(f"label {index} is {array[index]}, which names no class")
    return array


def _check_types(labels: Any) -> None:
    """See that labels are there and of one type; integers and floats may be mixed."""
    found = set()
    for index, label in enumerate(labels):
        kind = next((name for types, name in _TYPES if isinstance(label, types)), None)
        if kind is None:
            missing = "missing" if label is None else f"{label!r}, which is neither text nor a number"
            raise LabelError(f"label {index} is {missing}")
        found.add(kind)
    if len(found) > 1 and found != {"int", "float"}:
        raise LabelError(f"labels must be of one type, not of {' and '.join(sorted(found))}")


def _weight_array(weights: Any, count: int) -> Array:
    try:
        array = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LabelError("sample_weight: must be a list of numbers, one for each image") from error
    if array.shape != (count,):
        raise LabelError(f"sample_weight: must be {count} numbers, one for each image, not of shape {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise LabelError("sample_weight: must be finite and not negative")
    if not array.any():
        raise LabelError("sample_weight: all weights are zero, so there is no class to learn")
    return array


def _class_weights(given: Any, classes: Array, counts: Array) -> Array:
    """The weight of each class; balanced ones give every class the same sum."""
    if isinstance(given, str) and given == "balanced":
        return np.asarray(counts.sum() / (len(classes) * counts))
    if not isinstance(given, Mapping):
        raise LabelError(f"class_weight: must be 'balanced', a dictionary or None, not {given!r}")
    known = classes.tolist()
    strange = [label for label in given if label not in known]
    if strange:
        raise LabelError(f"class_weight: {strange[0]!r} is not a class; there are {', '.join(map(str, known))}")
    for label, weight in given.items():
        if not (isinstance(weight, int | float | np.number) and 0 < weight < math.inf):
            raise LabelError(f"class_weight: the weight of {label!r} must be a positive number, not {weight!r}")
    return np.array([float(given.get(label, 1.0)) for label in known])
