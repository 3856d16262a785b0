"""Windows of a block against the same windows looked at one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.config import MGCAPConfig
from mgcap.inference import dense
from mgcap.inference.dense import describe_block, is_dense, stride_of
from mgcap.inference.engines import Engine
from mgcap.inference.engines.torch import TorchEngine
from mgcap.inference.layout import Layout
from mgcap.model import MGCAP
from tests.inference.plain import patches_backbone

SIDE = 64


@pytest.fixture(autouse=True)
def _patches() -> Iterator[None]:
    with patches_backbone():
        yield


def _model(**given: object) -> tuple[MGCAP, Engine]:
    config = MGCAPConfig(
        **{
            "preset": "compact",
            "num_classes": 3,
            "backbone": "patches",
            "layer": "last",
            "reduction": "none",
            "channels": None,
            "size": SIDE,
            "rotations": 4,
            "granularities": (1.0,),
            "field_of_view": 1.0,
            **given,
        }
    )
    torch.manual_seed(0)
    model = MGCAP(config).eval().requires_grad_(False)
    return model, TorchEngine(model.backbones)


def _scene(side: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    coarse = torch.from_numpy(rng.random((1, 3, side // 4, side // 4))).float()
    return F.interpolate(coarse, (side, side), mode="bilinear")[0].clamp(0, 1)


def _block(model: MGCAP, xs: tuple[float, ...], ys: tuple[float, ...], scene: Tensor) -> tuple[Layout, Tensor]:
    """A layout around the middle of a scene, and as much of the scene as it asks for."""
    layout = Layout(xs, ys, SIDE, model.config)
    side = layout.side + layout.side % 2
    low = (scene.shape[-1] - side) // 2
    assert low >= 0
    return layout, scene[:, low : low + side, low : low + side]


def test_windows_are_what_the_model_says_of_the_same_pixels() -> None:
    model, engine = _model()
    scene = _scene(512)
    xs, ys = (-96.0, -32.0, 32.0), (-64.0, 40.0)  # whole positions: multiples of eight from the frame's corner
    layout, image = _block(model, xs, ys, scene)
    found = describe_block(model, engine, layout, image, range(6))
    for number, (y, x) in enumerate((y, x) for y in ys for x in xs):
        left, top = int(256 + x - SIDE / 2), int(256 + y - SIDE / 2)
        expected = model.descriptor(scene[None, :, top : top + SIDE, left : left + SIDE])
        assert torch.allclose(found.descriptors[number], expected[0], atol=1e-5), (x, y)


def test_only_the_windows_that_are_wanted_are_described() -> None:
    model, engine = _model()
    layout, image = _block(model, (-64.0, 0.0, 64.0), (-64.0, 0.0, 64.0), _scene(512))
    every = describe_block(model, engine, layout, image, range(9))
    some = describe_block(model, engine, layout, image, [7, 2])
    assert torch.equal(some.descriptors, every.descriptors[[2, 7]])
    assert torch.equal(some.rotations, every.rotations[[2, 7]])


@pytest.mark.parametrize("rotations", [4, 12])
def test_pieces_leave_no_seams(rotations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network whose positions see their surroundings, in one piece and in many."""
    model, engine = _model(backbone="alexnet", layer="conv2", rotations=rotations, granularities=(1.0, 0.8))
    places = tuple(float(n) for n in range(-128, 129, 32))
    layout, image = _block(model, places, places, _scene(768))
    whole = describe_block(model, engine, layout, image, range(len(places) ** 2))
    monkeypatch.setattr(dense, "PIECE", 224)
    parts = describe_block(model, engine, layout, image, range(len(places) ** 2))
    assert F.cosine_similarity(whole.descriptors, parts.descriptors).min() > 0.9999
    assert (whole.rotations == parts.rotations).float().mean() > 0.98


@pytest.mark.parametrize("rotations", [1, 4, 8, 12])
def test_a_quarter_turn_of_the_ground_turns_the_windows_with_it(rotations: int) -> None:
    model, engine = _model(backbone="alexnet", layer="conv1", rotations=rotations)
    places = (-64.0, 0.0, 64.0)
    scene = _scene(768)
    layout, image = _block(model, places, places, scene)
    upright = describe_block(model, engine, layout, image, range(9)).descriptors.reshape(3, 3, -1)
    rotated = describe_block(model, engine, layout, image.rot90(1, (1, 2)), range(9)).descriptors.reshape(3, 3, -1)
    own = F.cosine_similarity(rotated.flatten(0, 1), upright.rot90(1, (0, 1)).flatten(0, 1))
    if rotations == 1:
        assert own.min() < 0.999  # a model that looks once sees another picture
    else:
        assert own.min() > 0.999


def test_windows_beside_each_other_differ_and_the_same_ones_agree_across_blocks() -> None:
    """The lattice of positions is shared: a window is the same in whichever block it is."""
    model, engine = _model(backbone="alexnet", layer="conv2")
    scene = _scene(1024)
    first = Layout((-64.0, 0.0, 64.0), (0.0,), SIDE, model.config, (512.0, 512.0))
    second = Layout((-64.0, 0.0, 64.0), (0.0,), SIDE, model.config, (576.0, 512.0))
    found = []
    for layout in (first, second):
        side = layout.side + layout.side % 2
        left, top = (int(n) - side // 2 for n in layout.origin)
        found.append(describe_block(model, engine, layout, scene[:, top : top + side, left : left + side], range(3)))
    assert F.cosine_similarity(found[0].descriptors[1:], found[1].descriptors[:2]).min() > 0.9999
    assert F.cosine_similarity(found[0].descriptors[0], found[0].descriptors[1], 0) < 0.9999


def test_networks_whose_positions_attend_to_all_others_are_not_dense() -> None:
    model, _ = _model()
    assert is_dense(model)
    model.backbones[0].attends = True
    assert not is_dense(model)


@pytest.mark.parametrize(("size", "across", "stride"), [(224, 14, 16), (224, 13, 16), (64, 8, 8), (299, 17, 16)])
def test_stride_is_a_power_of_two(size: int, across: int, stride: int) -> None:
    assert stride_of(size, across) == stride
