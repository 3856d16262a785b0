from __future__ import annotations

from pathlib import Path

from tests.cli.run import run, sentence


def test_export_and_compare(model: Path, scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.pt2"
    done = run("export", "--model", model, "--format", "pt2", "--out", out, "--check", scenes)
    assert done.stdout.strip() == str(out)
    assert "the same class on 100.00 % of 24 images" in done.stderr


def test_bad_input_gets_one_sentence(model: Path, tmp_path: Path) -> None:
    assert "unknown" in sentence("export", "--model", model, "--format", "tflite", "--out", tmp_path / "m.onnx")
    assert "no model file" in sentence("export", "--model", tmp_path / "none.mgcap")
