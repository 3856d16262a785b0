from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import DataConversionWarning

from mgcap.errors import DataError
from mgcap.training.labels import LabelError, label_array, labelled

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 3), dtype=np.uint8)
NAMES = ["a", "b", "a", "a", "c", "b"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (NAMES, "U"),
        (tuple(NAMES), "U"),
        ([np.str_(name) for name in NAMES], "U"),
        (np.array(NAMES, dtype=object), "U"),
        (np.array([3, 1, 2], dtype=object), "i"),
        (torch.tensor([3, 1, 2]), "i"),
        ([torch.tensor(3), torch.tensor(1)], "i"),
        (np.array([1, 2], np.uint8), "u"),
        ([np.int64(3), 2], "i"),
        ([1, 2.5], "f"),
        ([True, np.bool_(False)], "b"),
    ],
)
def test_labels_of_every_type(given: Any, kind: str) -> None:
    array = label_array(given)
    assert array.dtype.kind == kind and array.tolist() == [getattr(x, "item", lambda x=x: x)() for x in given]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["a", None], "label 1 is missing"),
        (np.array(["a", None], dtype=object), "label 1 is missing"),
        ([1.0, float("nan")], "label 1 is nan"),
        (np.array([1.0, np.inf]), "label 1 is inf"),
        ([1, "a"], "labels must be of one type, not of int and text"),
        ([True, 2], "labels must be of one type, not of bool and int"),
        ([b"a", b"b"], "label 0 is b'a', which is neither text nor a number"),
        (np.zeros((3, 2)), "y should be a 1d array, not 2d"),
        ([[1], [2, 3]], "a list of text or numbers"),
        (5, "y should be a 1d array, not 0d"),
    ],
)
def test_what_is_no_label(given: Any, sentence: str) -> None:
    with pytest.raises(LabelError, match=sentence):
        label_array(given)
    assert issubclass(LabelError, DataError) and issubclass(LabelError, ValueError)


def test_a_column_is_taken_with_a_warning() -> None:
    with pytest.warns(DataConversionWarning):
        assert label_array(np.array([["a"], ["b"]])).tolist() == ["a", "b"]


def test_images_of_weight_zero_might_as_well_not_be_there() -> None:
    data, classes, members = labelled(PIXELS, NAMES, [1, 0.5, 0, 2, 0, 1])
    assert classes.tolist() == ["a", "b"] and members.tolist() == [0, 1, 3, 5]
    assert list(data.targets) == [0, 1, 0, 1] and data.weights == [1, 0.5, 2, 1]
    assert np.array_equal(data.items[2], PIXELS[3])
    assert labelled(PIXELS, NAMES).data.weights is None


def test_class_weights() -> None:
    assert labelled(PIXELS, NAMES, class_weight={"a": 2, "c": 0.5}).data.weights == [2, 1, 2, 2, 0.5, 1]
    assert labelled(PIXELS, NAMES, [1, 2, 3, 4, 5, 6], {"b": 10.0}).data.weights == [1, 20, 3, 4, 5, 60]
    data = labelled(PIXELS, NAMES, [1, 1, 1, 2, 1, 1], "balanced").data
    sums = np.bincount(data.targets, data.weights)
    assert np.allclose(sums, sums[0]) and np.isclose(sums.sum(), 7)
    from sklearn.utils.class_weight import compute_class_weight

    weights = labelled(PIXELS, NAMES, class_weight="balanced").data.weights
    expected = compute_class_weight("balanced", classes=np.unique(NAMES), y=NAMES)
    assert np.allclose([weights[0], weights[1], weights[4]], expected)


@pytest.mark.parametrize(
    ("weights", "sentence"),
    [
        ([1, 2], r"sample_weight: must be 6 numbers, one for each image, not of shape \(2,\)"),
        (np.ones((6, 1)), r"not of shape \(6, 1\)"),
        ([1, 1, 1, 1, 1, -1], "finite and not negative"),
        ([1, 1, 1, 1, 1, np.nan], "finite and not negative"),
        (["x"] * 6, "sample_weight: must be a list of numbers"),
        ([0] * 6, "all weights are zero"),
        ([1, 0, 1, 1, 0, 0], "only the class 'a'"),
    ],
)
def test_bad_weights(weights: Any, sentence: str) -> None:
    with pytest.raises(LabelError, match=sentence):
        labelled(PIXELS, NAMES, weights)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("blanced", "class_weight: must be 'balanced', a dictionary or None, not 'blanced'"),
        ({"d": 1.0}, "class_weight: 'd' is not a class; there are a, b, c"),
        ({"a": 0}, "the weight of 'a' must be a positive number, not 0"),
        ({"a": "x"}, "must be a positive number"),
    ],
)
def test_bad_class_weights(given: Any, sentence: str) -> None:
    with pytest.raises(LabelError, match=sentence):
        labelled(PIXELS, NAMES, None, given)
