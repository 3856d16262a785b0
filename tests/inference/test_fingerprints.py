"""Rules that users add: what is kept on disk must know a changed one from what it was before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from mgcap import MGCAPConfig, backbones, pooling, spectral
from mgcap.errors import DataError
from mgcap.evaluation.resumed import check_fingerprint
from mgcap.inference.extraction import recipe_of
from mgcap.inference.fingerprints import descriptor_fingerprint, fingerprint, rule_fingerprints
from mgcap.inference.forward import Variant
from mgcap.model import MGCAP
from mgcap.pooling import Rule

CONFIG = MGCAPConfig(backbone="alexnet", channels=6, size=64, rotations=4, granularities=(1.0, 0.8))

_RULE = """
import torch
POWER = 2
WORDS = frozenset(("one", "two", "three", "four"))

def root(matrices):
    return matrices.abs() ** (1 / POWER)

def add(kept, matrices, *, scale=1.0):
    own = [scale * root(m) for m in matrices.unbind(-3) if "one" in {"one", "two", "three"}]
    return torch.stack(own).amax(0) if kept is None else kept
"""


def _rule(source: str = _RULE) -> Rule:
    space: dict[str, object] = {"__name__": "rules"}
    exec(source, space)
    return Rule(space["add"])  # type: ignore[arg-type]


def test_what_rules_of_the_package_leave_in_a_recipe_never_changes() -> None:
    """Byte by byte, or the caches that are there would be of no use."""
    for kind in ("max", "mean"):
        model = MGCAP(CONFIG.replace(rotation_pooling=kind, reduction="learnt"))
        model.reduction.load_state_dict({name: t.fill_(0.5) for name, t in model.reduction.state_dict().items()})
        found = json.dumps(recipe_of(model, "torch", Variant.of(model), 1, 4, "0"), sort_keys=True)
        state = "STATE"
        found = found.replace(json.loads(found)["reduction_state"], state)
        assert found == (
            '{"activated": true, "backbone": "alexnet", "channels": 6, "corners": "mirror", "crop": 0.8, '
            '"embedding": "gaussian", "engine": "torch", "feature_norm": "rms", "frame": "filled", '
            f'"layer": "conv5", "reduction": "learnt", "reduction_state": "{state}", "ridge": 0.0001, '
            f'"rotation_pooling": "{kind}", "rotations": 4, "size": 64, "unbiased": false, "weights": "0"}}'
        )


def test_fingerprints_of_backbones_of_the_package_never_change() -> None:
    """Or the indexes that are there would be of no use; these were found before other backbones had any."""
    found = []
    for config in (CONFIG, CONFIG.replace(reduction="none", channels=None)):
        model = MGCAP(config)
        for tensor in (*model.backbones.state_dict().values(), *model.reduction.state_dict().values()):
            tensor.fill_(0.5)
        found.append(descriptor_fingerprint(model))
    assert found == [
        "9d694c0562327bc67ed3acf9aa06399cac0c8be25c10d533295f5b9f6e885881",
        "83f8a2cba547a9c1c178d5febc8efeb9a30f356641c32773f694c109671588da",
    ]
    for name in (*backbones.OWN, "timm:convnext_tiny"):
        assert rule_fingerprints(MGCAPConfig(backbone=name, reduction="none")) == {}


_BACKBONE = """
import torch
from torch import nn
from mgcap.backbones import Backbone, Tapped

def act(x):
    return x.relu()

class Block(nn.Module):
    gain = 2
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 12, 4, 4)
    @staticmethod
    def scaled(x):
        return x * 3
    def forward(self, x):
        return self.gain * self.scaled(act(self.conv(x)))

class Tiny(Tapped):
    def __init__(self, layer, activated):
        super().__init__()
        self.block = Block()
    def forward(self, x):
        return self.block(x)
    def steps(self):
        return [("conv", self.block)]

record = Backbone("own", "a tiny network", Tiny, {"conv": 12}, "conv", mean=(0.1, 0.2, 0.3))
"""


def _recipe(monkeypatch: pytest.MonkeyPatch, before: str = "", after: str = "") -> tuple[str, str]:
    space: dict[str, Any] = {"__name__": "mgcap_backbone_own"}
    exec(_BACKBONE.replace(before, after), space)
    monkeypatch.setitem(backbones.BACKBONES, "own", space["record"])
    torch.manual_seed(0)
    model = MGCAP(CONFIG.replace(backbone="own", reduction="none", channels=None))
    return json.dumps(recipe_of(model, "torch", Variant.of(model), 0, 4, "0")), descriptor_fingerprint(model)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x.relu()", "x.abs()"), ("gain = 2", "gain = 4"), ("x * 3", "x * 4"), ("act(self.conv(x))", "self.conv(x)"),
        ("return self.block(x)", "return self.block(x.flip(-1))"), ("0.1, 0.2", "0.2, 0.2"),
    ],
)  # fmt: skip
def test_an_edited_backbone_has_other_fingerprints(before: str, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights and its structure in words are the same, and so is its name."""
    first = _recipe(monkeypatch)
    assert _recipe(monkeypatch, "a tiny network", "a small network") == first
    changed = _recipe(monkeypatch, before, after)
    assert changed[0] != first[0] and changed[1] != first[1]


def test_a_changed_rule_has_another_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    recipes = []
    for rule in (_rule(), _rule(), _rule(_RULE.replace("POWER = 2", "POWER = 3"))):
        monkeypatch.setitem(pooling.RULES, "root", rule)
        model = MGCAP(CONFIG.replace(rotation_pooling="root", reduction="none", channels=None))
        recipes.append(recipe_of(model, "torch", Variant.of(model), 0, 4, "0"))
    assert recipes[0] == recipes[1] and recipes[0]["rule"] != recipes[2]["rule"]
    monkeypatch.setitem(pooling.RULES, "max", _rule())  # in place of one of ours
    assert "rotation_pooling" in rule_fingerprints(CONFIG)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("amax", "amin"), ("scale=1.0", "scale=2.0"), ("POWER = 2", "POWER = 2.5"), ("1 / POWER", "2 / POWER"),
        ("is None", "is not None"), ('"one" in', '"two" in'), (".abs()", ".square()"),
    ],
)  # fmt: skip
def test_whatever_changes_counts(before: str, after: str) -> None:
    assert fingerprint(_rule()) == fingerprint(_rule())
    assert fingerprint(_rule()) != fingerprint(_rule(_RULE.replace(before, after)))


def test_what_a_function_holds_on_to_counts() -> None:
    def weighted(weight: torch.Tensor) -> Rule:
        return Rule(lambda kept, matrices: (matrices * weight).sum(-3))

    class Powers:
        def __init__(self, power: int) -> None:
            self.power = power

        def __call__(self, kept: torch.Tensor | None, matrices: torch.Tensor) -> torch.Tensor:
            return (matrices**self.power).sum(-3)

    def itself(depth: int) -> object:
        return itself(depth - 1) if depth else itself

    assert fingerprint(weighted(torch.ones(2))) == fingerprint(weighted(torch.ones(2)))
    assert fingerprint(weighted(torch.ones(2))) != fingerprint(weighted(torch.zeros(2)))
    assert fingerprint(Powers(2)) == fingerprint(Powers(2)) != fingerprint(Powers(3))
    assert fingerprint(Powers(2).__call__) != fingerprint(Powers(3).__call__)
    assert fingerprint(partial(max, 1)) == fingerprint(partial(max, 1)) != fingerprint(partial(max, 2))
    assert fingerprint(torch.maximum) != fingerprint(torch.minimum)
    assert fingerprint(itself) == fingerprint(itself)


def test_what_is_unusual_is_no_trouble() -> None:
    class Slots:
        __slots__ = ("__weakref__", "power")

        def __init__(self, power: int) -> None:
            self.power = power

        def __call__(self, kept: torch.Tensor | None, matrices: torch.Tensor) -> torch.Tensor:
            return matrices**self.power

    assert fingerprint(Slots(2)) == fingerprint(Slots(2)) != fingerprint(Slots(3))
    assert fingerprint(Slots.__new__(Slots)) != fingerprint(Slots(2))

    def early(matrices: torch.Tensor) -> object:
        return later  # its cell is empty as yet

    before = fingerprint(early)
    later = 2
    assert fingerprint(early) != before


def test_another_process_finds_the_same(tmp_path: Path) -> None:
    """Hashes of text, and places in memory, differ from process to process; so does whether code was read or made."""
    (tmp_path / "rules.py").write_text(_RULE)
    code = "import rules; from mgcap.inference.fingerprints import fingerprint; print(fingerprint(rules.add))"
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_a_study_knows_a_changed_spectral_layer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The layer is behind the rows that are kept, but before the results of a study."""
    assert rule_fingerprints(CONFIG) == {}
    found = []
    for power in (0.5, 0.4):
        monkeypatch.setitem(spectral.LAYERS, "power", lambda matrix, config, power=power: matrix.abs() ** power)
        found.append(rule_fingerprints(CONFIG.replace(normalisation="power")))
    assert found[0].keys() == {"normalisation"} and found[0] != found[1]
    (tmp_path / "study.json").write_text(json.dumps({"identity": {"rules": found[0]}}))
    check_fingerprint(tmp_path / "study.json", {"rules": found[0]}, "study")
    for other in ({"rules": found[1]}, {}):
        with pytest.raises(DataError, match="a study with other rules; give another `out`"):
            check_fingerprint(tmp_path / "study.json", other, "study")
