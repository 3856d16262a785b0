"""Model files whose tensors are not those of the configuration, with a fingerprint that is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mgcap import MGCAPConfig
from mgcap.backbones import BACKBONES
from mgcap.errors import BundleError
from mgcap.model import MGCAP
from mgcap.persistence import bundle
from mgcap.persistence.bundle import read_bundle, write_bundle
from mgcap.persistence.layout import fits
from tests.mutations import rewrite
from tests.persistence.test_bundle import _bundle


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "m.mgcap", _bundle(), {"size": 224})
    return tmp_path / "m.mgcap"


_NAMES = {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL"}


@pytest.mark.parametrize("backbone", sorted(BACKBONES))
@pytest.mark.parametrize(
    "values",
    [
        {"channels": 3},
        {"reduction": "learnt", "channels": 5, "embedding": "covariance", "vector": "full"},
        {"reduction": "none", "channels": None, "share_granularities": False, "granularities": (1.0, 0.5)},
    ],
)
def test_the_layout_is_that_of_the_model(backbone: str, values: dict[str, Any]) -> None:
    layer = list(BACKBONES[backbone].layers)[1]
    config = MGCAPConfig(backbone=backbone, layer=layer, size=96, **values)
    state = MGCAP(config).state_dict()
    found = {name: (_NAMES[tensor.dtype], tuple(tensor.shape)) for name, tensor in state.items()}
    first = {name: kind for name, kind in found.items() if not name.startswith("backbones.1.")}
    without = {name: kind for name, kind in found.items() if not name.startswith("backbones.")}
    assert fits(config, False, found) and fits(config, False, first) and fits(config, True, without)
    assert not fits(config, True, found) and not fits(config, False, without)
    assert not fits(config, False, found | {"backbones.2.conv1.weight": ("F32", (1,))})
    for name, (kind, shape) in without.items():
        assert not fits(config, True, without | {name: ("F64", shape)})
        assert not fits(config, True, without | {name: (kind, (*shape, 1))})
        assert not fits(config, True, {other: without[other] for other in without if other != name})


@pytest.mark.parametrize("names", [("int8.1",), ("int8.x",), ("int8.",), ("int8.0", "int8.1"), ("int8.00",)])
def test_int8_constants_have_the_numbers_of_networks(file: Path, names: tuple[str, ...]) -> None:
    rewrite(file, lambda header, tensors: tensors.update({name: torch.ones(3) for name in names}))
    with pytest.raises(BundleError, match="do not fit"):
        read_bundle(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.update({"int8.0": torch.ones(3).double()}),
        lambda t: t.update({"int8.0": torch.ones(3, 1)}),
        lambda t: t.update({"int8.0": torch.ones(0)}),
        lambda t: t.update({"head.weight": t["head.weight"].half()}),
        lambda t: t.update({"head.weight": t["head.weight"].int()}),
        lambda t: t.update({"head.weight": t["head.weight"].T}),
        lambda t: t.update({"head.bias": torch.tensor(0.0)}),
        lambda t: t.update({"reduction.fitted": torch.tensor(1.0)}),
        lambda t: t.update({"mean": torch.zeros(3, 1, 1)}),
        lambda t: t.pop("head.bias"),
    ],
)
def test_names_types_and_shapes_are_the_configurations(file: Path, change: Any) -> None:
    rewrite(file, lambda header, tensors: change(tensors))
    with pytest.raises(BundleError, match="do not fit"):
        read_bundle(file)


@pytest.mark.parametrize("name", ["head.weight", "reduction.mean", "int8.0"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e30])
def test_weights_are_finite(file: Path, name: str, value: float) -> None:
    def change(header: object, tensors: dict[str, torch.Tensor]) -> None:
        tensors.setdefault(name, torch.ones(3)).view(-1)[-1] = value

    rewrite(file, change)
    with pytest.raises(BundleError, match="not finite"):
        read_bundle(file)


def test_no_tensor_is_read_before_all_are_known_to_fit(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large a model a header describes, and however large a tensor is."""

    class Shut:
        def __init__(self, *given: object) -> None:
            self.file = real(*given)

        def __enter__(self) -> Shut:
            self.file.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self.file.__exit__(*error)

        def __getattr__(self, name: str) -> Any:
            assert name != "get_tensor"
            return getattr(self.file, name)

    real, whole = bundle.safe_open, file.read_bytes()
    for values in ({"num_classes": 99_999}, {"channels": 1024}, {"share_granularities": False, "backbone": "vgg16"}):

        def change(header: dict[str, Any], tensors: object, values: dict[str, Any] = values) -> None:
            header["config"] |= values | {"layer": None}
            header["classes"] = [str(k) for k in range(header["config"]["num_classes"])]
            header["backbone"] |= {"name": header["config"]["backbone"], "stock": False}

        file.write_bytes(whole)
        rewrite(file, change)
        monkeypatch.setattr(bundle, "safe_open", Shut)
        with pytest.raises(BundleError, match="do not fit"):
            read_bundle(file)
        monkeypatch.undo()
