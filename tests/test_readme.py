"""The README's examples run as they are written; only the download is replaced by random weights."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from mgcap import weights
from mgcap.backbones import build_backbone
from mgcap.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    for name, layer in (("resnet50-v1", "stage5"), ("alexnet", "conv5")):
        state = build_backbone(name, layer).state_dict()
        monkeypatch.setitem(weights.SOURCES, name, (weights.state_hash(state), []))
        path = weights.cached_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(state, path)
    monkeypatch.chdir(tmp_path)
    (shell,), (python,) = _blocks("sh"), _blocks("python")
    for line in shell.strip().splitlines():
        program, *arguments = shlex.split(line)
        assert program == "mgcap"
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, (line, done.output)
    assert (tmp_path / "model.mgcap").exists()
    exec(compile(python, "README.md", "exec"), {})
    assert (tmp_path / "half.mgcap").exists()
    assert re.search(r"0\.\d+\n\['\w+'\]", capsys.readouterr().out)


def test_links_and_pictures_exist() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), (document, target)
