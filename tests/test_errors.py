from __future__ import annotations

from pathlib import Path

from mgcap.errors import did_you_mean, missing, unknown_class


def test_near_words_are_suggested_whatever_their_case() -> None:
    assert did_you_mean("VGG-16", ["alexnet", "vgg16"]) == " (did you mean 'vgg16'?)"
    assert did_you_mean("zebra", ["alexnet", "vgg16"]) == ""
    assert did_you_mean("x", []) == ""
    assert "did you mean 'River'" in str(unknown_class("rivers", ["River", "forest"]))


def test_a_file_beside_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "model.mgcap").touch()
    assert missing("file", tmp_path / "modle.mgcap").endswith("modle.mgcap (did you mean 'model.mgcap'?)")
    assert missing("file", tmp_path / "none" / "a") == f"there is no file {tmp_path / 'none' / 'a'}"
