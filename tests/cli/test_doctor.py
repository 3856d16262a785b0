from __future__ import annotations

import json

from tests.cli.run import run


def test_doctor() -> None:
    text = run("doctor").stdout
    for part in ("processor", "cores", "torch", "resnet50-v1: missing: mgcap weights fetch resnet50-v1", "timm"):
        assert part in text
    report = json.loads(run("doctor", "--json", "-").stdout)
    assert report["engines"]["auto"] in ("torch", "openvino")
    assert report["engines"]["torch"]["version"] and report["machine"]["cores"] >= 1
