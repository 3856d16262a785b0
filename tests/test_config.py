from __future__ import annotations

import pytest
from pydantic import ValidationError

from mgcap import MGCAPConfig
from mgcap.errors import ValuesError


def test_the_papers_numbers() -> None:
    c = MGCAPConfig(preset="paper")
    assert (c.backbone, c.layer, c.activated) == ("vgg16", "conv5_3", False)
    assert (c.granularities, c.rotations, c.size) == ((1.0, 0.9, 0.8), 12, 224)
    assert (c.frame, c.corners, c.ridge, c.clip) == ("padded", "zero", 1e-4, (1e-5, 1e5))
    assert (c.feature_norm, c.unbiased, c.fusion, c.normalisation) == ("rms", False, "mean", "sqrt")
    assert (c.vector, c.signed_root, c.share_granularities, c.reduction) == ("triangle", False, False, "none")
    assert c.angles == tuple(30.0 * r for r in range(12))


def test_the_authors_script() -> None:
    c = MGCAPConfig(preset="authors-code")
    assert (c.activated, c.feature_norm, c.unbiased) == (True, "l2", True)
    assert (c.fusion, c.fusion_norm, c.vector, c.signed_root) == ("sum", "frobenius", "full", True)


def test_compact_is_the_default() -> None:
    c = MGCAPConfig()
    assert (c.preset, c.backbone, c.layer, c.reduction, c.channels) == ("compact", "resnet50-v1", "stage4", "pca", 128)
    assert (c.granularities, c.rotations, c.frame, c.corners) == ((1.0, 0.8), 4, "filled", "mirror")


def test_what_follows_from_other_values() -> None:
    assert MGCAPConfig(normalisation="bilinear").signed_root is True
    assert MGCAPConfig(preset="paper", backbone="alexnet").layer == "conv5"
    assert MGCAPConfig(reduction="none").channels is None
    assert MGCAPConfig(frame="padded").corners == "zero"
    assert MGCAPConfig(granularities=0.9).granularities == (0.9,)
    c = MGCAPConfig(preset="paper").replace(backbone="alexnet", normalisation="bilinear")
    assert (c.layer, c.signed_root, c.rotations) == ("conv5", True, 12)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"preset": "best"}, "'compact', 'tiny', 'paper' or 'authors-code'"),
        ({"rotation": 4}, "'rotation' is not a configuration value (did you mean 'rotations'?)"),
        ({"rotations": 0}, "greater than or equal to 1"),
        ({"granularities": ()}, "at least one"),
        ({"granularities": (1.2,)}, "less than or equal to 1"),
        ({"backbone": "vgg"}, "allowed are vgg16"),
        ({"backbone": "vgg16", "layer": "conv6_1"}, "conv5_3"),
        ({"normalisation": "cube"}, "allowed are bilinear, log, sqrt"),
        ({"normalisation": "sqr"}, "'sqr' is unknown (did you mean 'sqrt'?); allowed"),
        ({"clip": (1.0, 0.1)}, "below the upper"),
        ({"frame": "padded", "corners": "mirror"}, "frame='filled'"),
        ({"reduction": "none", "channels": 5}, "must be None"),
        ({"reduction": "pca", "channels": None}, "give a number"),
        ({"channels": 2000}, "more than the 1024"),
        ({"normalisation": "log", "spectral_scale": "leading"}, "'sqrt' only"),
        ({"normalisation": "log", "spectral_method": "newton-schulz"}, "'sqrt' only"),
        ({"spectral_method": "newton-schulz", "gradient": "paper"}, "'eigh' only"),
        ({"num_classes": 1}, "greater than or equal to 2"),
        ({"size": 8}, "greater than or equal to 32"),
        ({"ridge": -1}, "greater than or equal to 0"),
        ({"ridge": float("nan")}, "finite number"),
        ({"clip": (1e-5, float("inf"))}, "finite number"),
        ({"clip": (1e-300, 1e5)}, "clip.0"),
        ({"preset": []}, "'compact', 'tiny', 'paper' or 'authors-code'"),
        ({"size": 1024, "rotations": 360}, "more than one image may have"),
        ({"granularities": (1.0,) * 17}, "at most 16"),
        ({"channels": 1024, "num_classes": 100_000}, "head would be too large"),
        ({"backbone": "timm:hf-hub:someone/model"}, "as timm:convnext_tiny"),
    ],
)
def test_impossible_values_are_refused_with_what_is_allowed(values: dict, sentence: str) -> None:
    with pytest.raises(ValuesError) as caught:
        MGCAPConfig(**values)
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_large_but_possible() -> None:
    MGCAPConfig(preset="paper", rotations=360)
    MGCAPConfig(preset="paper", size=1024)
    MGCAPConfig(backbone="resnet50", layer="stage5", reduction="none", vector="full", num_classes=51)
    assert MGCAPConfig(backbone="timm:convnext_tiny.fb_in22k").layer == "stage4"


def test_frozen() -> None:
    with pytest.raises(ValidationError):
        MGCAPConfig().rotations = 3  # type: ignore[misc]
