"""Samples of training descriptors in model files that a stranger altered, with a fingerprint that is right."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mgcap import SceneClassifier
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.errors import BundleError
from mgcap.inference.sample import TENSORS
from mgcap.persistence.layout import MAX_REDUCED, MAX_SHEET, QUANTILES, SAMPLE
from tests.mutations import Tensors, read, rewrite

GOLDEN = Path(__file__).parent / "golden" / "version-3.mgcap"
SCENES = [draw_scene(CLASSES[i], 1, i, 64) for i in range(3)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(GOLDEN, tmp_path / "m.mgcap"))


def _load(file: Path) -> SceneClassifier:
    return SceneClassifier.load(file, engine="torch")


def _change(file: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    rewrite(file, lambda header, tensors: tensors.update({SAMPLE + name: change(tensors[SAMPLE + name])}))


def test_the_whole_sample_is_in_the_file(file: Path) -> None:
    _, tensors = read(file)
    sample = _load(file).sample_
    assert sample is not None
    for name in TENSORS:
        assert torch.equal(getattr(sample, name), tensors[SAMPLE + name])


@pytest.mark.parametrize("name", TENSORS)
def test_half_a_sample_is_none(file: Path, name: str) -> None:
    rewrite(file, lambda header, tensors: tensors.pop(SAMPLE + name))
    with pytest.raises(BundleError, match="do not fit its configuration"):
        _load(file)


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("kind", [torch.float64, torch.int16])
def test_types_are_known(file: Path, name: str, kind: torch.dtype) -> None:
    _change(file, name, lambda tensor: tensor.to(kind))
    with pytest.raises(BundleError, match="do not fit its configuration"):
        _load(file)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("vectors", (0, 128)), ("vectors", (9, 0)), ("vectors", (9,)), ("vectors", ()), ("vectors", (9, 128, 1)),
        ("vectors", (8, 128)), ("vectors", (9, MAX_REDUCED + 1)), ("mean", (127,)), ("mean", (1, 128)),
        ("targets", (8,)), ("targets", ()), ("distances", (QUANTILES - 1,)), ("distances", (0,)),
        ("sheet", (MAX_SHEET + 1,)), ("sheet", ()), ("sheet", (2, 2)), ("pictured", (1,)),
    ],
)  # fmt: skip
def test_shapes_belong_to_each_other(file: Path, name: str, shape: tuple[int, ...]) -> None:
    _change(file, name, lambda tensor: torch.zeros(shape, dtype=tensor.dtype))
    with pytest.raises(BundleError, match="do not fit its configuration"):
        _load(file)


def test_nothing_else_goes_by_that_name(file: Path) -> None:
    rewrite(file, lambda header, tensors: tensors.update({f"{SAMPLE}more": torch.zeros(3)}))
    with pytest.raises(BundleError, match="do not fit its configuration"):
        _load(file)


def _at(place: int, value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        tensor.view(-1)[place] = value
        return tensor

    return change


def _narrow(header: dict[str, Any], tensors: Tensors) -> None:
    """Vectors of a length that no descriptor of this model comes down to."""
    tensors[f"{SAMPLE}vectors"] = tensors[f"{SAMPLE}vectors"][:, :100].contiguous()
    tensors[f"{SAMPLE}mean"] = tensors[f"{SAMPLE}mean"][:100]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("targets", _at(3, -1)), ("targets", _at(3, 3)), ("targets", _at(0, 2**31 - 1)), ("pictured", _at(0, -1)),
        ("pictured", _at(0, 10)), ("distances", _at(500, 3.0)), ("distances", lambda t: t.flip(0)),
    ],
)  # fmt: skip
def test_values_fit_the_model(file: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    _change(file, name, change)
    with pytest.raises(BundleError, match=r"sample of training descriptors .* does not fit the model"):
        _load(file)


def test_vectors_have_the_length_of_the_models(file: Path) -> None:
    rewrite(file, _narrow)
    with pytest.raises(BundleError, match=r"sample of training descriptors .* does not fit the model"):
        _load(file)


@pytest.mark.parametrize("name", ["mean", "distances"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e30])
def test_numbers_are_finite(file: Path, name: str, value: float) -> None:
    _change(file, name, _at(0, value))
    with pytest.raises(BundleError, match="not finite"):
        _load(file)


@pytest.mark.parametrize("maker", ["sketch-64", "0123456789abcdef", None])
def test_a_sample_that_was_made_otherwise_is_left_out(file: Path, maker: str | None) -> None:
    expected = _load(file).predict_proba(SCENES)

    def change(header: dict[str, Any], tensors: Tensors) -> None:
        header["provenance"]["reduced_by"] = maker
        _narrow(header, tensors)

    rewrite(file, change)
    model = _load(file)
    found = model.predict_readable(SCENES, on_error=None, keep=False)
    assert model.sample_ is None and found.distances is None and np.array_equal(found.probabilities, expected)
    assert np.isinf(model.limits(0.1).distance) and model.limits(0.1).confidence > 0


@pytest.mark.parametrize("maker", [3, ["sketch-128"], "x" * 65])
def test_who_made_it_is_a_name(file: Path, maker: Any) -> None:
    rewrite(file, lambda header, tensors: header["provenance"].update(reduced_by=maker))
    with pytest.raises(BundleError, match="reduced_by"):
        _load(file)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("sheet", lambda t: t[:0]), ("sheet", lambda t: t[: len(t) // 2]), ("sheet", lambda t: t.flip(0)),
        ("pictured", _at(0, 0)), ("pictured", _at(0, 3)), ("vectors", torch.zeros_like), ("mean", lambda t: t + 1e14),
        ("vectors", lambda t: torch.full_like(t, -128)), ("distances", lambda t: t - 1e14),
    ],
)  # fmt: skip
def test_what_is_strange_but_possible_harms_nobody(
    file: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    expected = _load(file).predict_proba(SCENES)
    _change(file, name, change)
    model = _load(file)
    found = model.predict_readable(SCENES, on_error=None, keep=False)
    assert found.distances is not None and np.isfinite(found.distances).all()
    assert np.array_equal(found.probabilities, expected)
    assert model.is_unknown(SCENES, 0.01).shape == (3,)
    assert model.sample_ is not None
    pictures = model.sample_.pictures()
    assert pictures is None or (name != "sheet" and len(pictures) == int(model.sample_.pictured))
