from __future__ import annotations

import torch

from mgcap import MGCAP, MGCAPConfig
from mgcap.bench.plain import plain_logits
from mgcap.bench.speed import bench_inference
from mgcap.data.synthetic import draw_scene


def test_the_plain_port_is_the_same_model() -> None:
    """Three interpolations instead of one blur a little; on a smooth picture the logits nearly agree."""
    torch.manual_seed(0)
    model = MGCAP(MGCAPConfig(preset="paper", backbone="alexnet", rotations=4, granularities=(1.0, 0.9))).eval()
    image = torch.from_numpy(draw_scene("river", 0, 0, 256)).permute(2, 0, 1).float()[None] / 255
    image = torch.nn.functional.avg_pool2d(image, 9, 1, 4)
    with torch.no_grad():
        ours, plain = model(image), plain_logits(model, list(model.backbones), image)
    assert (ours - plain).norm() < 0.1 * ours.norm()


def test_the_report() -> None:
    config = MGCAPConfig(backbone="alexnet", channels=8, size=64, rotations=2, frame="padded")
    report = bench_inference(config, ("plain", "torch"), images=2, repeats=2)
    assert report["speedup_over_torch"]["torch"] == 1.0
    assert report["plain"] > 0 and report["torch"] > 0
    assert report["speedup_over_plain"]["plain"] == 1.0
    assert report["peak_memory_mib"]["torch"] > 50
