from __future__ import annotations

import pytest

from mgcap.errors import MgcapError
from mgcap.inference.engines import choose_engine, openvino, probe


def _here(monkeypatch: pytest.MonkeyPatch, missing: list[str], works: bool) -> None:
    monkeypatch.setattr(openvino, "missing_packages", lambda int8: missing)
    monkeypatch.setattr(probe, "int8_verdict", lambda say: probe.Verdict(works, "", ""))


def test_auto_takes_the_fastest_that_works(monkeypatch: pytest.MonkeyPatch) -> None:
    _here(monkeypatch, [], True)
    assert choose_engine("auto", "cpu") == "openvino"
    assert choose_engine("auto", "cuda") == "torch"
    assert choose_engine("torch", "cpu") == "torch"
    _here(monkeypatch, [], False)
    assert choose_engine("auto", "cpu") == "torch"
    assert choose_engine("openvino-fp32", "cpu") == "openvino-fp32"
    _here(monkeypatch, ["nncf"], True)
    assert choose_engine("auto", "cpu") == "torch"


def test_what_cannot_be_had_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MgcapError, match="allowed are auto, torch"):
        choose_engine("tensorrt", "cpu")
    _here(monkeypatch, ["openvino", "nncf"], True)
    with pytest.raises(MgcapError, match=r"pip install 'mgcap\[cpu\]'"):
        choose_engine("openvino", "cpu")
    _here(monkeypatch, [], False)
    with pytest.raises(MgcapError, match="does not work on this machine"):
        choose_engine("openvino", "cpu")
    with pytest.raises(MgcapError, match="CPU only"):
        choose_engine("openvino", "cuda")
