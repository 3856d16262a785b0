from __future__ import annotations

import torch

from mgcap.backbones import build_backbone
from mgcap.baselines.method import Tools
from mgcap.baselines.networks import Layer, averaged, prepared
from mgcap.baselines.svm import DescriptorSvm
from tests.baselines.shades import IMAGES, shades


def test_a_layer_is_the_network_itself() -> None:
    found = Layer("alexnet", "conv4", averaged, "average", "torch", "random").rows(IMAGES)
    torch.manual_seed(0)
    network = build_backbone("alexnet", "conv4").eval()
    with torch.inference_mode():
        expected = network(prepared(IMAGES, "alexnet")).mean((-2, -1))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_frozen_features_with_a_machine() -> None:
    images, labels = shades(9)
    method = DescriptorSvm(Tools(), Layer("alexnet", "conv2", averaged, "average", "torch", "random"))
    assert method.fit(images, labels).predict(images).tolist() == labels
