"""What a network of the transformers library is, as plain values: its kind, its sizes and the statistics of its input.

With them a model can be built anew anywhere, without its folder and without the network. They may come from a model
file that a stranger made, so nothing here fetches, runs or imports anything, and everything has bounds.
"""

from __future__ import annotations

import json
import re
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

PREFIX = "hf:"
#: Characters of an architecture as text.
MAX_TEXT = 20_000
#: Of a name in a model file: that of a model on the hub, or of a folder; never a path.
_PORTABLE = r"hf:[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?"
#: Bounds of what a network may have, so that no file can ask for endless work or memory.
_MAX_BLOCKS, _MAX_NUMBER, _BOUNDS = 128, 65_536, {"window_size": 32, "hidden_size": 16_384}


class Family(NamedTuple):
    """Networks of one kind.

    Attributes:
        network: Class of transformers.
        configuration: Class of its configuration.
        kind: Whether it computes with tokens, feature maps or shifted windows.
        blocks: Where its blocks or stages are.
        norm: Where its last normalisation is.
        prefix: Tokens before those of the patches, besides registers.
    """

    network: str
    configuration: str
    kind: Literal["tokens", "maps", "windows"]
    blocks: str
    norm: str = "layernorm"
    prefix: int = 1


FAMILIES = {
    "vit": Family("ViTModel", "ViTConfig", "tokens", "layers"),
    "deit": Family("DeiTModel", "DeiTConfig", "tokens", "layers", prefix=2),
    "dinov2": Family("Dinov2Model", "Dinov2Config", "tokens", "encoder.layer"),
    "dinov2_with_registers": Family("Dinov2WithRegistersModel", "Dinov2WithRegistersConfig", "tokens", "encoder.layer"),
    "dinov3_vit": Family("DINOv3ViTModel", "DINOv3ViTConfig", "tokens", "model.layer", "norm"),
    "clip_vision_model": Family("CLIPVisionModel", "CLIPVisionConfig", "tokens", "encoder.layers", ""),
    "convnext": Family("ConvNextModel", "ConvNextConfig", "maps", "encoder.stages"),
    "convnextv2": Family("ConvNextV2Model", "ConvNextV2Config", "maps", "encoder.stages"),
    "dinov3_convnext": Family("DINOv3ConvNextModel", "DINOv3ConvNextConfig", "maps", "model.stages", "layer_norm"),
    "resnet": Family("ResNetModel", "ResNetConfig", "maps", "encoder.stages", ""),
    "swin": Family("SwinModel", "SwinConfig", "windows", "encoder.layers"),
}

Number = Annotated[int | float, Field(ge=-_MAX_NUMBER, le=_MAX_NUMBER)]
Word = Annotated[str, Field(pattern=r"\A[a-z0-9_]{1,40}\z")]
#: Of a value of a configuration; lists are sizes of stages.
Value = bool | Number | Word | None | Annotated[list[Number], Field(max_length=8)]
Three = tuple[Number, Number, Number]


class Architecture(BaseModel):
    """A network of transformers in values that are safe to build it from.

    Attributes:
        name: As the configuration of a model says it, ``hf:NAME``.
        kind: One of :data:`FAMILIES`.
        values: Of the network's configuration; they say nothing of files, code or the network.
        mean: Of RGB in [0, 1], subtracted from images.
        std: Images are divided by it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: Annotated[str, Field(min_length=4, max_length=1000)]
    kind: Literal[tuple(FAMILIES)]  # type: ignore[valid-type]
    values: dict[Word, Value]
    mean: Three
    std: Three

    @property
    def family(self) -> Family:
        """What networks of its kind have in common."""
        return FAMILIES[self.kind]

    @cached_property
    def layers(self) -> dict[str, int]:
        """The layers that can be tapped, with their channels."""
        if self.family.kind == "tokens":
            width = self._whole("hidden_size")
            return {**{f"block{i + 1}": width for i in range(self._whole("num_hidden_layers"))}, "last": width}
        depths = self._list("depths")
        if self.family.kind == "maps":
            widths = self._list("hidden_sizes")
        else:
            widths = [self._whole("embed_dim") * 2**i for i in range(len(depths))]
        if len(widths) != len(depths):
            raise ValueError("depths and hidden_sizes of the network differ in length")
        found = {f"stage{i + 1}": width for i, width in enumerate(widths)}
        return found if self.family.kind == "maps" else {**found, "last": widths[-1]}

    @property
    def default_layer(self) -> str:
        """The last of a transformer; of networks with stages the last but one, which has four times the positions."""
        return "last" if self.family.kind == "tokens" else f"stage{max(1, len(self._list('depths')) - 1)}"

    @property
    def patch(self) -> int:
        """Sides of images must be multiples of it."""
        return self._whole("patch_size") if self.family.kind == "tokens" else 1

    @property
    def smallest(self) -> int:
        """The smallest side of images: the last windows must not be larger than the grid."""
        if self.family.kind != "windows":
            return 1
        return self._whole("window_size") * self._whole("patch_size") << (len(self._list("depths")) - 1)

    @property
    def prefix(self) -> int:
        """Tokens before those of the patches."""
        return self.family.prefix + int(self.values.get("num_register_tokens") or 0)  # type: ignore[arg-type]

    def check(self) -> Architecture:
        """Itself, if it is that of a network that can be built; raises with one sentence otherwise."""
        if self.values.get("num_channels") != 3:
            raise ValueError(f"backbone: '{self.name}' does not take images of three channels")
        blocks = [self._whole("num_hidden_layers")] if self.family.kind == "tokens" else self._list("depths")
        too_large = [key for key, most in _BOUNDS.items() if (self.values.get(key) or 0) > most]  # type: ignore[operator]
        if sum(blocks) > _MAX_BLOCKS or too_large or not all(part > 0 for part in self.std):
            raise ValueError(f"backbone: '{self.name}' has sizes that no network has")
        if any(width < 1 for width in (*self.layers.values(), self.patch, self.smallest)):
            raise ValueError(f"backbone: '{self.name}' has sizes that no network has")
        return self

    def text(self) -> str:
        """As JSON."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def _whole(self, key: str) -> int:
        value = self.values.get(key)
        if type(value) is not int or value < 1:
            raise ValueError(f"backbone: '{self.name}' has no usable {key}")
        return value

    def _list(self, key: str) -> list[int]:
        value = self.values.get(key)
        if not isinstance(value, list) or not value or any(type(part) is not int or part < 1 for part in value):
            raise ValueError(f"backbone: '{self.name}' has no usable {key}")
        return value  # type: ignore[return-value]


@lru_cache(maxsize=64)
def parse_architecture(text: str) -> Architecture:
    """An architecture from its text.

    Raises:
        ValueError: With one sentence, if it is none.
    """
    if len(text) > MAX_TEXT:
        raise ValueError("architecture: it is too long")
    try:
        return Architecture.model_validate_json(text).check()
    except (ValidationError, RecursionError) as error:
        where = error.errors(include_url=False)[0]["loc"] if isinstance(error, ValidationError) else ("nesting",)
        raise ValueError(f"architecture: {'.'.join(str(part) for part in where)} is not that of a network") from error


def portable_name(name: str) -> str:
    """The name of a network without what it says of somebody's folders: ``hf:/models/dino`` is ``hf:dino``."""
    if not name.startswith(PREFIX) or re.fullmatch(_PORTABLE, name, re.ASCII):
        return name
    last = re.split(r"[\\/]", name.removeprefix(PREFIX).rstrip("\\/"))[-1]
    return PREFIX + (re.sub(r"[^\w.-]+|^[^A-Za-z0-9]+", "-", last, flags=re.ASCII).strip("-.")[:96] or "network")


def check_foreign(name: str, text: Any) -> None:
    """See that a backbone of somebody else's configuration says all that it takes to build it.

    Raises:
        ValueError: If a file or the network would have to be asked.
    """
    if not name.startswith(PREFIX):
        return
    if not re.fullmatch(_PORTABLE, name, re.ASCII):
        raise ValueError("backbone: a network of transformers in a model file has a plain name, as hf:owner/name")
    if not isinstance(text, str) or parse_architecture(text).name != name:
        raise ValueError(f"backbone: the file does not say what '{name}' is, and nothing is fetched for it")


def raw_values(found: dict[str, Any]) -> dict[str, Any]:
    """Those values of a configuration that an :class:`Architecture` may have."""
    plain = bool | int | float | str | None
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in found.items()
        if isinstance(value, plain) or (isinstance(value, list | tuple) and all(type(v) in (int, float) for v in value))
    }
