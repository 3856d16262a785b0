from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path

import pytest

from mgcap.cli.doctor import EXTRAS
from tests.cli.run import run

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_doctor() -> None:
    text = run("doctor").stdout
    for part in ("processor", "cores", "torch", "timm"):
        assert part in text
    assert text.split()[:3] == ["what", "item", "found"]
    assert re.search(r"resnet50-v1 +missing: mgcap weights fetch resnet50-v1", text)
    report = json.loads(run("doctor", "--json", "-").stdout)
    assert report["engines"]["auto"] in ("torch", "openvino")
    assert report["engines"]["torch"]["version"] and report["machine"]["cores"] >= 1


def test_every_extra_of_the_project_is_known() -> None:
    extras = PROJECT["optional-dependencies"]
    assert set(EXTRAS) <= set(extras)  # none that cannot be installed
    for name, packages in extras.items():
        if name not in ("dev", "docs", "all"):
            wanted = {found[0] for line in packages if (found := re.match(r"[\w.-]+", line))}
            assert wanted <= set(EXTRAS[name].modules), name


def test_all_missing_parts_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = {module for extra in EXTRAS.values() for module in extra.modules.values()}
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name in gone else find(name, *more))
    done = run("doctor")
    for name, extra in EXTRAS.items():
        assert f"pip install 'mgcap[{name}]'" in done.stdout
        assert all(f"{package} missing" in done.stdout for package in extra.modules)
    assert f"pip install 'mgcap[{','.join(EXTRAS)}]'" in done.stderr
