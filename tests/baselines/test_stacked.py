from __future__ import annotations

import numpy as np
import scipy.linalg
import torch

from mgcap.backbones import build_backbone
from mgcap.baselines.networks import prepared
from mgcap.baselines.stacked import StackedCovariance, stacked
from tests.baselines.shades import IMAGES


def test_stacked_channels_have_mean_zero_and_variance_one() -> None:
    maps = [torch.rand(2, 8, 6, 6), torch.rand(2, 4, 3, 3)]
    channels = stacked(maps, 2)
    assert channels.shape == (2, 6, 9)
    torch.testing.assert_close(channels.mean(-1), torch.zeros(2, 6), atol=1e-5, rtol=0)
    torch.testing.assert_close(channels.square().mean(-1), torch.ones(2, 6))
    pooled = maps[0][0, :2].mean(0).reshape(3, 2, 3, 2).mean((1, 3))  # the first channel: two maps, 2 x 2 pixels
    expected = (pooled - pooled.mean()) / pooled.std(correction=0)
    torch.testing.assert_close(channels[0, 0].view(3, 3), expected)


def test_mscp_is_the_logarithm_of_the_covariance() -> None:
    descriptor = StackedCovariance("alexnet", weights="random")
    row = descriptor.rows(IMAGES[:1])[0].double().numpy()
    torch.manual_seed(0)
    network = build_backbone("alexnet", "conv5").eval()
    x, maps = prepared(IMAGES[:1], "alexnet"), []
    with torch.inference_mode():
        for module in network.features:
            x = module(x)
            if isinstance(module, torch.nn.ReLU):
                maps.append(x.clone())
    channels = stacked(maps[2:], 4)[0].double().numpy()
    matrix = channels @ channels.T / channels.shape[1]
    matrix += 1e-4 * np.trace(matrix) * np.eye(len(matrix))
    expected = scipy.linalg.logm(matrix)
    upper = np.triu_indices(len(matrix))
    scale = np.where(upper[0] == upper[1], 1, np.sqrt(2))
    np.testing.assert_allclose(row, expected[upper] * scale, atol=2e-3)
    several = StackedCovariance("alexnet", (160, 224), "random").rows(IMAGES[:1])
    assert several.shape == (1, len(row)) and not np.allclose(several[0].numpy(), row)
