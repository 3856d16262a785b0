from __future__ import annotations

import numpy as np
import scipy.linalg
import torch

from mgcap.backbones import build_backbone
from mgcap.baselines.method import Tools
from mgcap.baselines.networks import prepared
from mgcap.baselines.stacked import LAYERS, StackedCovariance, StackedCovarianceSvm, stacked
from tests.baselines.shades import IMAGES


def test_stacked_channels_are_averages_of_unit_length() -> None:
    maps = [torch.rand(2, 8, 6, 6), torch.rand(2, 4, 3, 3)]
    channels = stacked(maps, 2)
    assert channels.shape == (2, 4, 9)
    torch.testing.assert_close(channels.square().sum(-1), torch.ones(2, 4))
    last = maps[1][1, 2:].mean(0).flatten()  # the last channel of the smaller layer: two maps, not resized
    torch.testing.assert_close(channels[1, 3], last / last.norm())


def test_mscp_is_the_logarithm_of_the_covariance() -> None:
    row = StackedCovariance("alexnet", weights="random").rows(IMAGES[:1])[0].double().numpy()
    torch.manual_seed(0)
    network = build_backbone("alexnet", "conv5").eval()
    x, maps = prepared(IMAGES[:1], "alexnet"), []
    with torch.inference_mode():
        for module in network.features:  # type: ignore[union-attr]
            x = module(x)
            if isinstance(module, torch.nn.Conv2d):
                maps.append(x.clone())
    channels = stacked(maps[2:], LAYERS["alexnet"][1])[0].double().numpy()
    expected = scipy.linalg.logm(np.cov(channels) + 0.005 * np.eye(240))
    upper = np.triu_indices(240)
    scale = np.where(upper[0] == upper[1], 1, np.sqrt(2))
    np.testing.assert_allclose(row, expected[upper] * scale, atol=2e-3)


def test_rows_of_several_resolutions_are_averaged() -> None:
    tools = Tools(engine="torch")
    method = StackedCovarianceSvm(tools, "alexnet", (160, 224), "random")
    each = [tools.describe(view, list(IMAGES[:2])) for view in method.views]
    assert not torch.allclose(each[0], each[1])
    torch.testing.assert_close(method.rows(list(IMAGES[:2])), (each[0] + each[1]) / 2)
