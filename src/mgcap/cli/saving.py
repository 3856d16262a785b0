"""How commands write models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mgcap.cli.console import bars
from mgcap.persistence.files import atomic_path

if TYPE_CHECKING:
    from mgcap.classifier import SceneClassifier


def save_model(model: SceneClassifier, out: Path) -> None:
    """Write a model; one that was there is kept under another name."""
    with atomic_path(out) as temporary:
        model.save(temporary)
        if out.exists():
            previous = out.with_name(f"{out.stem}.previous{out.suffix}")
            out.replace(previous)
            bars.say(f"the model that was there is now {previous}")
    bars.say(f"model: {out}")
