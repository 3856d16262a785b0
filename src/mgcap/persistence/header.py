"""What the header of a model file may say: whoever wrote it, what is read here can be used without another look."""

from __future__ import annotations

import json
import math
import unicodedata
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from mgcap.backbones import find_backbone
from mgcap.backbones.architecture import check_foreign
from mgcap.config import MGCAPConfig
from mgcap.data.imagery import Imagery

#: Bounds of what is parsed: characters of the whole and of an integer, and how deep lists and objects may be nested.
MAX_TEXT, MAX_DIGITS, MAX_DEPTH = 8 << 20, 20, 32
#: The longest text that a value of the configuration may be.
MAX_VALUE = 200


def _class_name(name: str) -> str:
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise ValueError("a class name must not have control characters")
    return name


def _unique(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise ValueError("two classes have the same name")
    return names


def _rising(values: list[float] | None) -> list[float] | None:
    if values is not None and any(after < before for before, after in pairwise(values)):
        raise ValueError("percentiles must rise")
    return values


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
LabelType = Literal[
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
]
#: Types of labels that are numbers.
LABEL_TYPES: tuple[str, ...] = get_args(LabelType)
ClassName = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(_class_name)]


class _Part(BaseModel):
    """What is used later has its type; what is not is kept as it is."""

    model_config = ConfigDict(extra="allow", strict=True)


class _Backbone(_Part):
    name: str
    stock: bool
    sha256: Annotated[str, Field(max_length=64)]
    source: Annotated[str, Field(max_length=1000)]


def _file_name(name: str) -> str:
    if not name.isprintable() or "/" in name or "\\" in name:
        raise ValueError("must be the name of a file, without its folder")
    return name


class _Parameters(_Part):
    weights: Annotated[str, Field(min_length=1, max_length=300), AfterValidator(_file_name)] = "imagenet"
    descriptor: Literal["universal", "own"] = "universal"
    regularisation: Literal["auto"] | Positive = "auto"
    class_weight: Literal["balanced"] | dict[ClassName, Positive] | None = None
    composed: Annotated[int, Field(ge=0, le=100_000)] = 0


class _Provenance(_Part):
    images: Count | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)] | None = None
    regularisation: Positive | None = None
    parameters: _Parameters | None = None
    finetune: dict[str, Any] | None = None
    reduced_by: Annotated[str, Field(max_length=64)] | None = None
    examples_by: Annotated[str, Field(max_length=64)] | None = None


class _Metrics(_Part):
    temperature: Annotated[float, Field(ge=1e-3, le=1e3)] | None = None
    held_out_confidence_percentiles: Annotated[list[Share] | None, AfterValidator(_rising)] = None
    cross_validated_head_accuracy_on_training_images: Share | None = None
    test_accuracy: Share | None = None
    test_images: Count | None = None
    epochs: list[dict[str, Any]] | None = None
    summary: dict[str, Any] | None = None


class _Imagery(Imagery):
    model_config = ConfigDict(strict=True)

    dtype: Annotated[str, Field(pattern=r"\A[a-z]{1,16}[0-9]{0,3}\z")] = "uint8"
    white: Annotated[float, Field(ge=1e-6, le=1e10)] = 255.0
    side: Annotated[int, Field(ge=1, le=1 << 15)] = 256
    resolution: Annotated[float, Field(ge=1e-6, le=1e6)] | None = None


class Header(_Part):
    """A header whose values are as they should be; ``config`` is made of :attr:`configuration`."""

    format_version: int
    configuration: Annotated[dict[str, Any], Field(alias="config")]
    classes: Annotated[list[ClassName], AfterValidator(_unique)]
    label_kind: Literal["str", "int", "float", "bool"]
    label_dtype: LabelType | None = None
    backbone: _Backbone
    provenance: _Provenance
    metrics: _Metrics
    imagery: _Imagery = _Imagery()

    @property
    def config(self) -> MGCAPConfig:
        """The configuration, whose types must be the right ones as well."""
        given = {name: tuple(v) if isinstance(v, list) else v for name, v in self.configuration.items()}
        if any(isinstance(v, str) and len(v) > MAX_VALUE for name, v in given.items() if name != "architecture"):
            raise ValueError("config: a value is too long")
        name, architecture = given.get("backbone"), given.get("architecture")
        if isinstance(name, str):
            check_foreign(name, architecture)  # before anybody is asked what it is
            find_backbone(name, architecture if isinstance(architecture, str) else None)
        return MGCAPConfig.model_validate(given, strict=True)


def parse(text: str) -> dict[str, Any]:
    """The JSON object of a header.

    Raises:
        ValueError: If it is damaged, or larger or deeper than any header is.
    """
    if len(text) > MAX_TEXT:
        raise ValueError("the header is too long")
    try:
        found = json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("the header is nested too deeply") from error
    if not isinstance(found, dict) or _deeper(found, MAX_DEPTH):
        raise ValueError("the header is no object, or nested too deeply")
    json.dumps(found, ensure_ascii=False).encode()  # half a character is a ValueError, too
    return found


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError("an integer is too long")
    return int(text)


def _deeper(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def finite(value: Any) -> Any:
    """The same with null in place of numbers that are not finite, which JSON does not know."""
    if isinstance(value, dict):
        return {name: finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checked(header: dict[str, Any]) -> tuple[Header, MGCAPConfig]:
    """What a header says.

    Raises:
        ValueError: With one line, if it does not describe a model.
    """
    try:
        found = Header.model_validate(finite(header))
        config = found.config
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise ValueError(one_line(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")) from error
    for name in found.classes:
        if not _is_label(name, found.label_kind, found.label_dtype):
            kind = found.label_dtype or found.label_kind
            raise ValueError(one_line(f"the class '{name}' is not of the type {kind}"))
    if found.backbone.name != config.backbone:
        raise ValueError(one_line(f"its backbone is called {found.backbone.name} and {config.backbone}"))
    if len(found.classes) != config.num_classes:
        raise ValueError(f"it names {len(found.classes)} classes for {config.num_classes} outputs")
    return found, config


def _is_label(name: str, kind: str, dtype: str | None) -> bool:
    """Whether a name can become a label of this type again, the very same number if it is one."""
    if kind in ("str", "bool"):
        return dtype is None and (kind == "str" or name in ("True", "False"))
    try:
        if kind == "float":
            number = float(name)
            return math.isfinite(number) and (dtype is None or _holds_float(dtype, number))
        return _holds_integer(dtype, int(name))
    except ValueError:  # NumPy knows no integers of a type of floats either
        return False


def _holds_float(dtype: str, number: float) -> bool:
    with np.errstate(over="ignore"):
        return np.dtype(dtype).kind == "f" and float(np.dtype(dtype).type(number)) == number


def _holds_integer(dtype: str | None, number: int) -> bool:
    low, high = (np.iinfo(name) for name in ((dtype, dtype) if dtype else ("int64", "uint64")))
    return int(low.min) <= number <= int(high.max)


def one_line(error: object, length: int = 200) -> str:
    """The beginning of a message, which may quote a file, on one line and without control characters."""
    text = " ".join(str(error).split())
    return "".join(character if character.isprintable() else "?" for character in text)[:length]
