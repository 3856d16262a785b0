from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from mgcap import backbones, pooling, spectral
from tests.cli.run import SMALL, run, sentence

RULE = """
import torch
from mgcap.pooling import RULES, Rule

def least(kept, matrices):
    own = matrices.amin(-3)
    return own if kept is None else torch.minimum(kept, own)

RULES["least"] = Rule(least)
"""
FUNCTION = """
from mgcap.spectral import LAYERS

LAYERS["square"] = lambda matrix, config: matrix @ matrix
"""


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone behind it."""
    kept = [(registry, dict(registry)) for registry in (pooling.RULES, spectral.LAYERS)]
    monkeypatch.setattr(backbones, "_files", {})
    yield
    for registry, entries in kept:
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize(
    ("code", "value"), [(RULE, "rotation_pooling=least"), (FUNCTION, "normalisation=square")], ids=["rule", "function"]
)
def test_rules_and_functions_of_the_users_own(code: str, value: str, scenes: Path, tmp_path: Path) -> None:
    (file := tmp_path / "mine.py").write_text(code)
    command = ["train", scenes, "--out", tmp_path / "m.mgcap", *SMALL, "--set", value]
    name = value.partition("=")[2]
    assert f"'{name}' is unknown" in sentence(*command)
    run(*command, "--add", file)
    image = next(scenes.glob("*/*.png"))
    found = run("predict", image, "--model", tmp_path / "m.mgcap", "--add", file, "--format", "csv")
    assert next(csv.DictReader(io.StringIO(found.stdout)))["class"]
    for registry in (pooling.RULES, spectral.LAYERS):
        registry.pop(name, None)
    assert f"'{name}' is unknown" in sentence("predict", image, "--model", tmp_path / "m.mgcap")


def test_a_file_that_registers_nothing(scenes: Path, tmp_path: Path) -> None:
    (file := tmp_path / "mine.py").write_text("least = 1")
    said = sentence("train", scenes, "--out", tmp_path / "m.mgcap", "--add", file)
    assert "registers no backbone, pooling rule or spectral function" in said
