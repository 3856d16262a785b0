from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("openvino")
pytest.importorskip("nncf")

import mgcap
from mgcap.backbones import BACKBONES, Backbone, Tapped, build_backbone
from mgcap.data.folders import open_folder
from mgcap.data.synthetic import CLASSES, draw_scene
from mgcap.errors import BundleError, MgcapError
from mgcap.inference.calibration import calibration_views
from mgcap.inference.descriptors import stream_answers
from mgcap.inference.engines import openvino as module
from mgcap.inference.engines import probe
from mgcap.inference.engines.openvino import OpenVinoEngine
from mgcap.inference.preparation import prepare_engine
from mgcap.persistence.files import cache_dir
from mgcap.runtime import Progress, Runtime, silent
from tests.conftest import TINY


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_backbone("alexnet").eval()


@pytest.fixture
def int8_works() -> None:
    if not probe.int8_verdict().works:
        pytest.skip("int8 does not work on this machine")


def _views(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(seed))


def test_fp32_is_torchs(network: torch.nn.Module) -> None:
    engine = OpenVinoEngine([network], 64, None, silent)
    views = _views(11)  # not a multiple of the request size
    with torch.no_grad():
        expected = network(views).flatten(2)
    assert (engine.features(views, 0) - expected).norm() < 1e-4 * expected.norm()
    assert engine.name == "openvino-fp32" and engine.quantisation == {}


def test_no_telemetry() -> None:
    code = (
        "import sys; from mgcap.inference.engines.openvino import quiet_openvino; quiet_openvino(); import nncf\n"
        "from nncf.telemetry.wrapper import telemetry\n"
        "sent = [m for m in sys.modules if m.startswith('openvino_telemetry.')]\n"
        "sys.exit(bool(sent) or 'Mock' not in repr(telemetry))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "CI", "NNCF"))}
    assert subprocess.run([sys.executable, "-c", code], env=environment).returncode == 0


def test_int8_is_near_and_rebuilt_bit_for_bit_from_its_constants(
    network: torch.nn.Module, int8_works: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = OpenVinoEngine([network, network], 64, lambda: list(_views(16)), silent)
    views = _views(9, seed=1)
    with torch.no_grad():
        expected = network(views).flatten(2)
    found = made.features(views, 1)
    assert (found - expected).norm() < 0.1 * expected.norm()
    assert not torch.equal(found, expected)
    assert list(made.quantisation) == ["0"]  # the two networks are one
    # from the cache, without calibration being computed again
    monkeypatch.setattr(module, "_quantise", None)
    again = OpenVinoEngine([network], 64, lambda: list(_views(16)), silent)
    assert torch.equal(again.features(views, 0), found)
    assert torch.equal(again.quantisation["0"], made.quantisation["0"])
    monkeypatch.undo()
    # on another machine, from the constants alone
    monkeypatch.setenv("MGCAP_HOME", str(tmp_path))
    elsewhere = OpenVinoEngine([network], 64, dict(made.quantisation), silent)
    assert torch.equal(elsewhere.features(views, 0), found)
    with pytest.raises(MgcapError, match="other versions"):
        OpenVinoEngine([network], 64, {"0": made.quantisation["0"][:-3]}, silent)
    # constants of a stranger
    own = made.quantisation["0"]
    for constants in ({"1": own}, {"0": own, "1": own}, {"0": own.bfloat16()}, {"0": own[:0]}):
        with pytest.raises(BundleError, match="other versions"):
            OpenVinoEngine([network], 64, constants, silent)


def test_a_kept_graph_is_not_that_of_an_edited_network(int8_works: None) -> None:
    """The parameters and the structure in words of both are the same."""

    class Own(torch.nn.Module):
        def __init__(self, power: int) -> None:
            super().__init__()
            self.conv, self.power = torch.nn.Conv2d(3, 4, 8, 8), power

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x) ** self.power

    views = list(_views(4))
    found = []
    for power in (1, 2):
        torch.manual_seed(0)
        engine = OpenVinoEngine([Own(power).eval()], 64, lambda: views, silent, code=str(power))
        found.append(engine.features(torch.stack(views), 0))
    torch.testing.assert_close(found[0] ** 2, found[1], atol=0.1, rtol=0.1)


class _Own(Tapped):
    """A network of a user's, with a normalisation to fold and a branch."""

    def __init__(self, layer: str, activated: bool) -> None:
        super().__init__()
        self.first = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 4, 4), torch.nn.BatchNorm2d(16), torch.nn.ReLU())
        self.second = torch.nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return (x + self.second(x)).relu()


def test_int8_logits_of_a_network_of_ones_own_are_near(int8_works: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKBONES, "own", Backbone("own", "", _Own, {"last": 16}, "last"))
    torch.manual_seed(0)
    config = mgcap.MGCAPConfig(backbone="own", reduction="none", size=64, rotations=2, num_classes=5)
    model = mgcap.MGCAP(config).eval().requires_grad_(False)
    images = [torch.from_numpy(draw_scene(name, 0, 0, 64)).movedim(-1, 0) / 255 for name in CLASSES[:8]]
    logits = []
    for name in ("torch", "openvino"):
        engine = prepare_engine(model, Runtime(name, "cpu"), lambda: calibration_views(model, images[:4], 0))
        assert engine.name == name
        logits.append(torch.cat([found.logits for _, found in stream_answers(model, engine, images, _fail)]))
    difference = (logits[1] - logits[0]).norm() / (logits[0] - logits[0].mean(0)).norm()  # between images
    assert 0 < difference < 0.2


def _fail(index: int, error: Exception) -> None:
    raise error


def test_a_network_that_cannot_be_converted_runs_in_torch(
    scenes: Path, int8_works: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no such operation")

    monkeypatch.setattr(module, "_converted", fails)
    folder = open_folder(scenes)
    model = mgcap.SceneClassifier(**{**TINY, "engine": "auto"}).fit(folder.paths[::6], folder.labels[::6])
    assert model.engine_.name == "torch"
    with pytest.raises(MgcapError, match="cannot run alexnet: no such operation"):
        mgcap.SceneClassifier(**{**TINY, "engine": "openvino"}).fit(folder.paths[::6], folder.labels[::6])


def test_a_model_trained_in_int8_predicts_the_same_after_loading(
    scenes: Path, tmp_path: Path, int8_works: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = open_folder(scenes)
    model = mgcap.SceneClassifier(**{**TINY, "engine": "openvino"}).fit(folder.paths, folder.labels)
    assert model.provenance_["engine"] == "openvino"
    model.save(tmp_path / "m.mgcap")
    expected = model.predict_proba(folder.paths)
    monkeypatch.setenv("MGCAP_HOME", str(tmp_path / "elsewhere"))
    assert np.array_equal(mgcap.load(tmp_path / "m.mgcap").predict_proba(folder.paths), expected)
    as_torch = mgcap.load(tmp_path / "m.mgcap", engine="torch").predict_proba(folder.paths)
    assert np.abs(as_torch - expected).mean() < 0.1
    # without OpenVINO it falls back to torch, and says so
    monkeypatch.setattr(module, "missing_packages", lambda int8: ["openvino"])
    said: list[str] = []

    class Words(Progress):
        def say(self, line: str) -> None:
            said.append(line)

    assert np.allclose(mgcap.load(tmp_path / "m.mgcap", progress=Words()).predict_proba(folder.paths), as_torch)
    assert "trained with int8" in said[0]


@pytest.mark.parametrize("suffix", [".bin", ".xml", ".safetensors"])
@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_a_damaged_engine_in_the_cache_is_made_again(suffix: str, damage: str) -> None:
    network = build_backbone("alexnet", "conv2").eval()
    views = [torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    asked = torch.stack(views)

    def features() -> torch.Tensor:
        return OpenVinoEngine([network], 64, lambda: views, silent).features(asked, 0)

    expected = features()
    (kept,) = (cache_dir() / "engines").glob(f"*{suffix}")
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 64
    damaged = bytes(content if damage == "flipped" else content[: len(content) // 2])
    kept.write_bytes(damaged)
    assert torch.equal(features(), expected)
    assert kept.read_bytes() != damaged
