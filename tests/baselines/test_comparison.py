from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mgcap.baselines import find_methods
from mgcap.baselines.comparison import Comparison, choose
from mgcap.data.folders import open_folder
from mgcap.data.splits import make_split
from mgcap.errors import DataError
from mgcap.runtime import Runtime

#: Methods of a test: one that knows the folder's name, one that raises, one whose process dies.
FILE = """
import os, pathlib, signal
import numpy as np
from mgcap.baselines import About, register

class Oracle:
    def __init__(self, tools): self.seed = tools.seed
    def fit(self, images, labels): self.known = sorted(set(labels))
    def predict(self, images):
        names = [path.parent.name for path in images]
        return np.array([self.known[0] if k == self.seed else name for k, name in enumerate(names)])
    def parameters(self): return 7

class Raises(Oracle):
    def predict(self, images): raise RuntimeError("out of luck")

class Dies(Oracle):
    def fit(self, images, labels): os.kill(os.getpid(), signal.SIGKILL)

for kind in (Oracle, Raises, Dies):
    about = About(kind.__name__.lower(), kind.__name__, "handcrafted", "a test", "cheats")
    register(about, kind)
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(FILE)
    return path


def _comparison(scenes: Path, out: Path, own: Path, names: list[str], **options: Any) -> Comparison:
    folder = open_folder(scenes)
    splits = [make_split(folder.targets, 0.5, seed) for seed in range(2)]
    return Comparison(folder, splits, names, out, files=[own], runtime=Runtime(cache=False, **options))


def test_a_method_that_fails_leaves_its_error_and_the_others_finish(scenes: Path, own: Path, tmp_path: Path) -> None:
    rows = _comparison(scenes, tmp_path / "out", own, ["raises", "dies", "oracle", "colour"]).run()
    by_name = {row["name"]: row for row in rows}
    assert "out of luck" in by_name["raises"]["error"] and "signal 9" in by_name["dies"]["error"]
    assert by_name["dies"]["mean"] is None and by_name["dies"]["p_value"] is None
    oracle = by_name["oracle"]
    assert rows[0] is oracle and oracle["mean"] > 90 and oracle["parameters"] == 7 and oracle["memory_mib"] > 50
    assert 0 <= by_name["colour"]["mean"] <= 100 and by_name["colour"]["predict_ms"] > 0


def test_a_comparison_resumes_with_what_is_missing(scenes: Path, own: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = _comparison(scenes, out, own, ["oracle"]).run()
    file = out / "runs" / "oracle-00.json"
    kept = file.stat().st_mtime_ns
    (out / "runs" / "oracle-01.json").unlink()
    again = _comparison(scenes, out, own, ["oracle"]).run()
    assert file.stat().st_mtime_ns == kept and again[0]["runs"] == first[0]["runs"]
    assert json.loads(file.read_text())["train_images"] == 12
    with pytest.raises(DataError, match="other seed"):
        _comparison(scenes, out, own, ["oracle"], seed=5)


def test_which_methods_are_meant() -> None:
    methods = find_methods()
    assert choose(methods, []) == methods
    assert list(choose(methods, ["mid-level", "gist", "sift-llc"])) == ["sift-bovw", "sift-spm", "sift-llc", "gist"]
    assert list(choose(methods, ["timm:vit_small"])) == ["timm:vit_small"]
    with pytest.raises(DataError, match="no method 'magic'"):
        choose(methods, ["magic"])
