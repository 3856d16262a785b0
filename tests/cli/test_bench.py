from __future__ import annotations

import json

from tests.cli.run import run


def test_inference() -> None:
    options = "--preset compact --backbone alexnet --rotations 1 --set channels=8 --set size=64 --images 1 --repeats 1"
    report = json.loads(run("bench", "inference", *options.split(), "--json", "-").stdout)
    assert {"plain", "torch", "openvino_fp32", "openvino_int8"} <= set(report)
