"""Results as the evaluation gives them, made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

from mgcap.config import MGCAPConfig
from mgcap.data.folders import SceneFolder

CLASSES = ("forest", "river")


def folder(root: Path) -> SceneFolder:
    """Two pictures of two classes."""
    paths = tuple(root / "scenes" / name / "a.png" for name in CLASSES)
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16)).save(path)
    return SceneFolder(root / "scenes", paths, (0, 1), CLASSES)


def summary(mean: float = 90.0, std: float | None = 2.5, **config: Any) -> dict[str, Any]:
    """The summary of two runs."""
    names = ("accuracy", "macro_f1", "kappa", "ece", "ece_calibrated", "loss", "cross_validated_accuracy")
    return {
        "mean": mean,
        "std": std,
        "runs": [mean - 1, mean + 1],
        "means": {name: mean if name != "ece_calibrated" else None for name in names},
        "stds": {name: std if name != "ece_calibrated" else None for name in names},
        "classes": list(CLASSES),
        "per_class_accuracy": {"forest": 100.0, "river": 80.0},
        "confusion": [[10, 0], [2, 8]],
        "train_images": 40,
        "test_images": 10,
        "engine": "torch",
        "weights": "random",
        "versions": {"mgcap": "0"},
        "configuration": MGCAPConfig(**config).model_dump(mode="json"),
        "wrong": [{"path": "river/a.png", "truth": "river", "predicted": "forest", "probability": 0.7}],
    }
