"""Model files whose header a stranger wrote, with a fingerprint that is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from mgcap.errors import BundleError
from mgcap.persistence.bundle import Bundle, read_bundle, write_bundle
from mgcap.persistence.header import finite
from tests.mutations import read, rewrite, write
from tests.persistence.test_bundle import _bundle


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_bundle(tmp_path / "m.mgcap", _bundle(), {"size": 224})
    return tmp_path / "m.mgcap"


def _refused(path: Path, match: str | None = None) -> None:
    with pytest.raises(BundleError, match=match) as caught:
        read_bundle(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_what_a_stranger_writes_is_read_if_it_is_right(file: Path) -> None:
    rewrite(file, lambda header, tensors: header["provenance"].update(by="a stranger"))
    assert read_bundle(file).provenance["by"] == "a stranger"


def _nested(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = {"a": [inner]}
    return inner


@pytest.mark.parametrize(
    ("part", "values"),
    [
        ("format_version", [True, 0, -1, "1", 1.0, None, [1], 10**25]),
        (
            "classes",
            ["ab", {"a": 1, "b": 2}, ["a"], ["a", "a"], ["a", ""], ["a", 1], ["a", "x" * 1001], ["a", "b\x1b"]],
        ),
        ("classes", [["a", "b", "c"], [["a"], "b"], None, 2]),
        ("backbone", [None, [], "vgg16", {}, {"name": "resnet50-v1", "stock": True}]),
        ("provenance", [None, [], "x", {"images": "x"}, {"images": -1}, {"images": True}]),
        (
            "metrics",
            [None, [], {"temperature": "x"}, {"temperature": 0}, {"temperature": True}, {"temperature": 1e300}],
        ),
        ("metrics", [{"held_out_confidence_percentiles": v} for v in ("x", 1, [0.1, "x"], [0.2, 0.1], [2], [None])]),
        ("provenance", [{"seed": v} for v in ("1", 1.5, True, 10**20 - 1)]),
        ("provenance", [{"regularisation": v} for v in ("x", 0, -1.0)] + [{"finetune": []}, {"finetune": "all"}]),
        ("provenance", [{"parameters": v} for v in ("x", [1], {"regularisation": -1}, {"regularisation": "x"})]),
        ("provenance", [{"parameters": {"weights": v}} for v in ("", "/etc/x", "..\\x", "a\nb", 1, "x" * 301)]),
        ("provenance", [{"parameters": {"class_weight": v}} for v in ("x", [1], {"a": 0}, {"a": "1"}, {"": 1.0})]),
        ("provenance", [{"parameters": {"descriptor": v}} for v in ("mine", None)]),
        ("label_dtype", ["object", "O", "int32", "U9", "datetime64", "complex64", 3, ["int8"], "float64 "]),
        ("metrics", [{"epochs": 1}, {"epochs": [1]}, {"summary": []}, {"test_accuracy": "x"}, {"test_images": 1.5}]),
        ("imagery", [None, [], {"side": 0}, {"side": 10**9}, {"side": True}, {"dtype": 1}, {"dtype": "a\nb"}]),
        ("imagery", [{"white": 0}, {"white": 1e-300}, {"white": "255"}, {"resolution": -1}, {"resolution": 1e-300}]),
        ("config", [None, [], "compact", _nested(3)]),
        ("provenance", [_nested(20), {"x": 10**25}]),
    ],
)
def test_values_of_wrong_types_are_one_sentence(file: Path, part: str, values: list[Any]) -> None:
    header, tensors = read(file)
    for value in values:
        write(file, header | {part: value}, tensors)
        _refused(file)


@pytest.mark.parametrize(
    ("kind", "dtype", "classes", "right"),
    [
        ("int", "uint8", ["0", "255"], True), ("int", "uint8", ["0", "256"], False),
        ("int", "int8", ["-128", "1"], True), ("int", "uint64", ["-1", "1"], False),
        ("int", "float32", ["1", "2"], False), ("float", "int8", ["1.0", "2.0"], False),
        ("float", "float32", ["0.5", "0.1"], False), ("float", "float32", ["0.5", "1e300"], False),
        ("float", "float16", ["0.5", "0.25"], True), ("int", None, [str(2**63), str(2**64 - 1)], True),
        ("int", None, ["1", str(2**64)], False), ("bool", "uint8", ["True", "False"], False),
    ],
)  # fmt: skip
def test_labels_must_be_numbers_of_their_type(
    file: Path, kind: str, dtype: str | None, classes: list[str], right: bool
) -> None:
    header, tensors = read(file)
    write(file, header | {"label_kind": kind, "label_dtype": dtype, "classes": classes}, tensors)
    if right:
        assert [str(label) for label in read_bundle(file).labels().tolist()] == classes
    else:
        _refused(file, "is not of the type")


@pytest.mark.parametrize("part", ["format_version", "config", "classes", "backbone", "provenance", "metrics", "digest"])
def test_every_part_is_needed(file: Path, part: str) -> None:
    header, tensors = read(file)
    del header[part]
    if part == "digest":
        save_file(tensors, file, {"mgcap": json.dumps(header)})
    else:
        write(file, header, tensors)
    _refused(file)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 10**6}, {"rotations": 361}, {"rotations": True}, {"rotations": "4"}, {"granularities": [1.0] * 17},
        {"size": 1024, "rotations": 360}, {"channels": 10**6}, {"num_classes": 10**9}, {"num_classes": 3},
        {"num_classes": True}, {"clip": [1e-300, 1e300]}, {"clip": []}, {"preset": []}, {"backbone": "timm:x"},
        {"backbone": "../x"}, {"backbone": ["alexnet"]}, {"backbone": "x" * 10**6}, {"layer": "x" * 10**6},
        {"layer": 3}, {"extra\n": 1}, {"ridge": None}, {"backbone": "vgg16", "layer": None},
    ],
)  # fmt: skip
def test_configurations_of_strangers(file: Path, change: dict[str, Any]) -> None:
    rewrite(file, lambda header, tensors: header["config"].update(change))
    _refused(file)


@pytest.mark.parametrize("name", ["hf-hub:someone/model", "local-dir:/tmp/x", "../x", "a/b", "hf_hub:x", "é", " "])
def test_timm_is_not_asked_to_fetch_or_to_open_anything(file: Path, name: str) -> None:
    def change(header: dict[str, Any], tensors: object) -> None:
        header["config"] |= {"backbone": f"timm:{name}", "layer": "stage4"}
        header["backbone"] |= {"name": f"timm:{name}", "stock": False}

    rewrite(file, change)
    _refused(file, "letters, digits")


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "1", "[" * 10**6, '{"a":' * 10**5, "1" * 10**6, '{"a": 1e', '{"a": "\\ud800"}',
        "{" + " " * 10**7 + "}",
    ],
)  # fmt: skip
def test_headers_that_are_no_headers(file: Path, text: str) -> None:
    save_file(read(file)[1], file, {"mgcap": text})
    _refused(file, "damaged header")


def test_numbers_that_json_does_not_know_become_nothing(file: Path) -> None:
    assert finite({"a": [float("nan"), 1.5], "b": float("-inf"), "c": "x"}) == {"a": [None, 1.5], "b": None, "c": "x"}
    rewrite(file, lambda header, tensors: header["metrics"].update(loss=float("nan"), more=[float("inf"), 2]))
    assert read_bundle(file).metrics == {"accuracy": 0.5, "loss": None, "more": [None, 2]}
    rewrite(file, lambda header, tensors: header["config"].update(ridge=float("nan")))
    _refused(file)


def test_what_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    whole = _bundle()
    odd = Bundle(whole.config, ("a", "a"), whole.backbone, whole.tensors)
    with pytest.raises(BundleError, match=r"cannot be written.*same name"):
        write_bundle(tmp_path / "m.mgcap", odd, {})
    diverged = Bundle(whole.config, ("a", "b"), whole.backbone, whole.tensors, metrics={"loss": float("nan")})
    write_bundle(tmp_path / "m.mgcap", diverged, {})
    assert read_bundle(tmp_path / "m.mgcap").metrics == {"loss": None}
    assert torch.equal(read_bundle(tmp_path / "m.mgcap").tensors["head.weight"], whole.tensors["head.weight"])
