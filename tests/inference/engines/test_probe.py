from __future__ import annotations

import importlib.util
import json
import os
import signal

import pytest

from mgcap.inference.engines import probe
from mgcap.persistence.files import cache_dir

needs_openvino = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="openvino is not installed")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(probe.VARIABLE, "")
    monkeypatch.delenv(probe.VARIABLE)


def test_a_machine_where_it_works() -> None:
    assert probe.probe_int8(lambda cap: 0) == probe.Verdict(True, "", "int8 works")


def test_a_killed_child_leads_to_a_cap() -> None:
    tried: list[str] = []

    def attempt(cap: str) -> int:
        tried.append(cap)
        return 0 if cap == "AVX512_CORE_VNNI" else -signal.SIGILL

    verdict = probe.probe_int8(attempt)
    assert tried == ["", "AVX10_1_512", "AVX512_CORE_VNNI"]
    assert verdict.works and verdict.cap == "AVX512_CORE_VNNI" and "signal 4" in verdict.story


def test_a_machine_where_nothing_helps() -> None:
    verdict = probe.probe_int8(lambda cap: -signal.SIGILL)
    assert not verdict.works and "fp32 is used" in verdict.story


@needs_openvino
def test_the_answer_is_remembered_until_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def answer() -> probe.Verdict:
        calls.append(1)
        return probe.Verdict(True, "AVX2", "int8 died with signal 4 and works with AVX2")

    monkeypatch.setattr(probe, "probe_int8", answer)
    said: list[str] = []
    assert probe.int8_verdict(say=said.append).cap == "AVX2"
    assert os.environ[probe.VARIABLE] == "AVX2" and len(said) == 1
    assert probe.int8_verdict(say=said.append).cap == "AVX2" and len(calls) == len(said) == 1
    probe.int8_verdict(again=True)
    assert len(calls) == 2
    (file,) = (cache_dir() / "probe").iterdir()
    file.write_text("{damaged")
    probe.int8_verdict()
    assert len(calls) == 3 and json.loads(file.read_text())["works"]


@needs_openvino
def test_for_real_in_a_child_process() -> None:
    verdict = probe.probe_int8()
    assert isinstance(verdict.works, bool) and verdict.story


def test_a_child_that_really_dies_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert probe._try("") == -signal.SIGILL
    assert not probe.probe_int8().works
