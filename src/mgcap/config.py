"""Every number of the paper, with the equation it belongs to, and the presets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from mgcap.backbones import Backbone, find_backbone
from mgcap.backbones.architecture import MAX_TEXT
from mgcap.backbones.hub import architecture_of
from mgcap.descriptions import MODEL
from mgcap.errors import did_you_mean
from mgcap.head import vector_length
from mgcap.pooling import RULES
from mgcap.spectral import LAYERS
from mgcap.values import Values

Preset = Literal["compact", "tiny", "paper", "authors-code"]

_PAPER: dict[str, Any] = {
    "backbone": "vgg16",
    "activated": False,
    "share_granularities": False,
    "field_of_view": 0.875,  # the central 224 of 256 pixels
    "granularities": (1.0, 0.9, 0.8),
    "rotations": 12,
    "frame": "padded",
    "corners": "zero",
    "reduction": "none",
    "channels": None,
}

#: What each preset sets; everything else keeps the default of its field.
PRESETS: dict[str, dict[str, Any]] = {
    "compact": {},
    "tiny": {"backbone": "mobilenet_v2", "layer": "features.13", "granularities": (1.0,), "channels": 96},
    "paper": _PAPER,
    "authors-code": {
        **_PAPER,
        "activated": True,
        "feature_norm": "l2",
        "unbiased": True,
        "fusion": "sum",
        "fusion_norm": "frobenius",
        "vector": "full",
        "signed_root": True,
    },
}


#: The most pixels that the views of one image may have together (the paper's have 1.8 million), and numbers of a head.
MAX_VIEW_PIXELS, MAX_HEAD = 1 << 26, 1 << 30

#: Part of a side.
Ratio = Annotated[float, Field(gt=0, le=1)]
#: Bounds of eigenvalues that float32 can hold, and so can what becomes of them.
Eigenvalue = Annotated[float, Field(ge=1e-30, le=1e30)]


def _one_of(registry: Mapping[str, object]) -> Callable[[str], str]:
    """A check that a value names an entry of a registry, which may grow."""

    def check(value: str) -> str:
        if value not in registry:
            raise ValueError(f"'{value}' is unknown{did_you_mean(value, registry)}; allowed are {', '.join(registry)}")
        return value

    return check


class MGCAPConfig(Values):
    """The configuration of one MG-CAP model.

    Values are checked when the object is made; unknown names and impossible values are a ``ValuesError`` of one
    sentence. What is not given comes from ``preset``. The object is frozen: use ``config.replace(rotations=4)`` for a
    changed copy.
    """

    model_config = ConfigDict(validate_default=True, allow_inf_nan=False)

    preset: Annotated[Preset, Field(description=MODEL["preset"])] = "compact"
    num_classes: Annotated[int, Field(ge=2, le=100_000, description=MODEL["num_classes"])] = 21

    # Views, Eq. 3
    size: Annotated[int, Field(ge=32, le=1024, description=MODEL["size"])] = 224
    field_of_view: Annotated[float, Field(gt=0, le=1, description=MODEL["field_of_view"])] = 1.0
    granularities: Annotated[tuple[Ratio, ...], Field(description=MODEL["granularities"])] = (1.0, 0.8)
    rotations: Annotated[int, Field(ge=1, le=360, description=MODEL["rotations"])] = 4
    frame: Annotated[Literal["padded", "filled"], Field(description=MODEL["frame"])] = "filled"
    corners: Annotated[Literal["zero", "mirror"], Field(description=MODEL["corners"])] = "mirror"

    # Backbone f_e
    backbone: Annotated[str, Field(description=MODEL["backbone"])] = "resnet50-v1"
    layer: Annotated[str | None, Field(description=MODEL["layer"])] = None
    activated: Annotated[bool, Field(description=MODEL["activated"])] = True
    architecture: Annotated[
        Annotated[str, Field(max_length=MAX_TEXT)] | None, Field(description=MODEL["architecture"], repr=False)
    ] = None
    share_granularities: Annotated[bool, Field(description=MODEL["share_granularities"])] = True

    # Reduction of channels C -> C'
    reduction: Annotated[Literal["none", "pca", "learnt"], Field(description=MODEL["reduction"])] = "pca"
    channels: Annotated[Annotated[int, Field(ge=1, le=4096)] | None, Field(description=MODEL["channels"])] = 128

    # Embedding, Eq. 5-8
    feature_norm: Annotated[Literal["none", "rms", "l2"], Field(description=MODEL["feature_norm"])] = "rms"
    embedding: Annotated[Literal["gaussian", "covariance"], Field(description=MODEL["embedding"])] = "gaussian"
    unbiased: Annotated[bool, Field(description=MODEL["unbiased"])] = False
    ridge: Annotated[float, Field(ge=0, le=1, description=MODEL["ridge"])] = 1e-4

    # Pooling, Eq. 4 and 2
    rotation_pooling: Annotated[str, AfterValidator(_one_of(RULES)), Field(description=MODEL["rotation_pooling"])] = (
        "max"
    )
    fusion: Annotated[Literal["mean", "sum"], Field(description=MODEL["fusion"])] = "mean"
    fusion_norm: Annotated[Literal["none", "frobenius"], Field(description=MODEL["fusion_norm"])] = "none"

    # Spectral layer, Eq. 9-13 and 20-26
    normalisation: Annotated[str, AfterValidator(_one_of(LAYERS)), Field(description=MODEL["normalisation"])] = "sqrt"
    clip: Annotated[tuple[Eigenvalue, Eigenvalue], Field(description=MODEL["clip"])] = (1e-5, 1e5)
    gradient: Annotated[Literal["exact", "paper"], Field(description=MODEL["gradient"])] = "exact"
    spectral_scale: Annotated[Literal["none", "leading"], Field(description=MODEL["spectral_scale"])] = "none"
    spectral_method: Annotated[Literal["eigh", "newton-schulz"], Field(description=MODEL["spectral_method"])] = "eigh"

    # Vector and head, Eq. 1
    vector: Annotated[Literal["triangle", "full"], Field(description=MODEL["vector"])] = "triangle"
    signed_root: Annotated[bool, Field(description=MODEL["signed_root"])] = False

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        values = {**PRESETS.get(str(given.get("preset", "compact")), {}), **given}
        if isinstance(values.get("granularities"), int | float):
            values["granularities"] = (values["granularities"],)
        if "signed_root" not in values:  # the signed root belongs to bilinear pooling
            values["signed_root"] = values.get("normalisation") == "bilinear"
        if "corners" not in given and values.get("frame") == "padded":
            values["corners"] = "zero"
        if "channels" not in given and values.get("reduction") == "none":
            values["channels"] = None
        backbone = str(values.get("backbone", "resnet50-v1"))
        values["architecture"] = architecture_of(backbone, values.get("architecture"))
        if values.get("layer") is None:
            values["layer"] = find_backbone(backbone, values["architecture"]).default_layer
        return values

    @model_validator(mode="after")
    def _check_combinations(self) -> MGCAPConfig:
        spec = self.record
        spec.check_size(self.size)
        width = spec.width(str(self.layer))
        side = (self.channels or width or 0) + (self.embedding == "gaussian")
        problems = [
            (
                self.size**2 * self.rotations * len(self.granularities) > MAX_VIEW_PIXELS,
                f"size: {len(self.granularities) * self.rotations} views of {self.size} pixels are more than one image "
                "may have; take a smaller size, or fewer rotations or granularities",
            ),
            (
                vector_length(side, self.vector) * self.num_classes > MAX_HEAD,
                "channels: the head would be too large; take fewer channels, or vector='triangle'",
            ),
            (not self.granularities, "granularities: give at least one crop ratio in (0, 1]"),
            (len(self.granularities) > 16, "granularities: at most 16 are allowed"),
            (self.clip[0] >= self.clip[1], "clip: the lower bound must be below the upper one, as (1e-5, 1e5)"),
            (
                self.frame == "padded" and self.corners == "mirror",
                "corners: 'mirror' needs frame='filled'; a padded frame has corners='zero'",
            ),
            (self.reduction == "none" and self.channels is not None, "channels: must be None with reduction='none'"),
            (
                self.reduction != "none" and self.channels is None,
                f"channels: give a number with reduction='{self.reduction}'",
            ),
            (
                self.channels is not None and width is not None and self.channels > width,
                f"channels: {self.channels} is more than the {width} of {self.backbone} {self.layer}; "
                f"give `channels={width}` or less",
            ),
            (
                self.spectral_scale == "leading" and self.normalisation != "sqrt",
                "spectral_scale: 'leading' is allowed with normalisation='sqrt' only",
            ),
            (
                self.spectral_method == "newton-schulz" and self.normalisation != "sqrt",
                "spectral_method: 'newton-schulz' is allowed with normalisation='sqrt' only",
            ),
            (
                self.spectral_method == "newton-schulz" and self.gradient == "paper",
                "gradient: 'paper' is allowed with spectral_method='eigh' only",
            ),
        ]
        for wrong, sentence in problems:
            if wrong:
                raise ValueError(sentence)
        return self

    def replace(self, **changes: Any) -> MGCAPConfig:
        """Return a checked copy with some values changed.

        Values that follow from others (the default layer of a backbone, say) are worked out anew unless
        they were given explicitly before.
        """
        return MGCAPConfig(**{**self.model_dump(include=self.model_fields_set - self._derived()), **changes})

    def given(self) -> dict[str, Any]:
        """The values besides preset and number of classes that make this configuration; the others follow from them."""
        every = self.model_dump(exclude={"preset", "num_classes"})
        plain = MGCAPConfig(preset=self.preset)
        found = {name: value for name, value in every.items() if value != getattr(plain, name)}
        for name in ("layer", "signed_root", "corners", "channels"):
            fewer = {key: value for key, value in found.items() if key != name}
            if name in found and self._made_by(fewer):
                found = fewer
        return found if self._made_by(found) else every

    def _made_by(self, values: dict[str, Any]) -> bool:
        try:
            made = MGCAPConfig(preset=self.preset, num_classes=self.num_classes, **values)
        except ValueError:
            return False
        return made.model_dump() == self.model_dump()

    def _derived(self) -> set[str]:
        derived = {"layer"} if self.layer == self.record.default_layer else set()
        if self.signed_root == (self.normalisation == "bilinear"):
            derived.add("signed_root")
        return derived

    @property
    def record(self) -> Backbone:
        """What is known of the backbone."""
        return find_backbone(self.backbone, self.architecture)

    @property
    def angles(self) -> tuple[float, ...]:
        """The rotations Phi in degrees, 360 r / R (below Eq. 3)."""
        return tuple(360.0 * r / self.rotations for r in range(self.rotations))
