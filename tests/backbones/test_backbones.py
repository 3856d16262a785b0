from __future__ import annotations

import pytest
import torch

from mgcap import MGCAPConfig
from mgcap.backbones import BACKBONES, build_backbone, find_backbone, split_backbone

#: Parameters of torchvision's models without their classifiers (from the published totals).
PARAMETERS = {
    "vgg16": 138_357_544 - (25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000),
    "vgg19": 143_667_240 - (25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000),
    "alexnet": 61_100_840 - (9216 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000),
    "googlenet": 6_624_904 - (1024 * 1000 + 1000),
    "inception_v3": 27_161_264 - 3_326_696 - (2048 * 1000 + 1000),  # without the auxiliary classifier
    "mobilenet_v2": 3_504_872 - (1280 * 1000 + 1000),
    "resnet18": 11_689_512 - (512 * 1000 + 1000),
    "resnet34": 21_797_672 - (512 * 1000 + 1000),
    "resnet50": 25_557_032 - (2048 * 1000 + 1000),
    "resnet50-v1": 25_557_032 - (2048 * 1000 + 1000),
}


@pytest.mark.parametrize("name", BACKBONES)
def test_parameters_widths_and_sizes(name: str) -> None:
    """On a device without numbers, which is enough for names and shapes."""
    with torch.device("meta"):
        spec = BACKBONES[name]
        net = spec.whole_network()
        assert sum(p.numel() for p in net.parameters()) == PARAMETERS[name]
        assert spec.default_layer in spec.layers and all(0 < value < 1 for value in (*spec.mean, *spec.std))
        whole = set(net.state_dict())
        for layer, width in spec.layers.items():
            cut = build_backbone(name, layer).eval()
            assert cut(torch.zeros(1, 3, max(64, spec.smallest), 80)).shape[1] == width
            assert set(cut.state_dict()) <= whole


@pytest.mark.parametrize("name", BACKBONES)
@torch.no_grad()
def test_split_at_every_step(name: str) -> None:
    network = BACKBONES[name].whole_network().eval()
    x = torch.rand(1, 3, max(64, BACKBONES[name].smallest), 80)
    wanted = network(x)
    for first, module in network.steps():
        lower, upper = split_backbone(network, first)
        assert torch.equal(upper(x), wanted)  # x has gone through all before it
        assert len(list(lower.parameters())) + len(list(upper.parameters())) == len(list(network.parameters()))
        x = module(x)


def test_the_papers_count() -> None:
    assert PARAMETERS["vgg16"] == 14_714_688


def test_torchvision_names() -> None:
    assert {"features.0.weight", "features.28.bias"} <= set(build_backbone("vgg16").state_dict())
    assert {"features.0.weight", "features.10.bias"} <= set(build_backbone("alexnet").state_dict())
    names = set(build_backbone("resnet50", "stage5").state_dict())
    assert {
        "conv1.weight",
        "bn1.running_mean",
        "layer1.0.downsample.0.weight",
        "layer3.5.bn3.running_var",
        "layer4.2.conv3.weight",
    } <= names
    names = set(build_backbone("mobilenet_v2").state_dict())
    assert {"features.0.1.running_mean", "features.1.conv.2.bias", "features.18.0.weight"} <= names
    assert {"features.14.conv.0.0.weight"} == {
        name for name in build_backbone("mobilenet_v2", "features.14.conv.0").state_dict() if ".14.conv.0.0" in name
    }
    names = set(build_backbone("inception_v3", "Mixed_7c").state_dict())
    assert {
        "Conv2d_1a_3x3.conv.weight",
        "Mixed_6e.branch7x7dbl_5.bn.bias",
        "Mixed_7c.branch3x3_2b.conv.weight",
    } <= names
    assert "layer1.0.downsample.1.weight" not in set(build_backbone("resnet18").state_dict())


@pytest.mark.parametrize("name", ["vgg16", "alexnet", "resnet18"])
def test_a_whole_torchvision_state_dict_loads_as_it_is(name: str) -> None:
    spec = BACKBONES[name]
    whole = build_backbone(name, list(spec.layers)[-1]).state_dict()
    tops = {"resnet18": "fc.weight"}.get(name, "classifier.6.weight")
    whole[tops] = torch.zeros(1000, 8)
    early = build_backbone(name, list(spec.layers)[1])
    early.load_state_dict(whole)
    first = "conv1.weight" if name == "resnet18" else "features.0.weight"
    assert torch.equal(early.state_dict()[first], whole[first])
    with pytest.raises(RuntimeError, match="something_else"):
        early.load_state_dict({**whole, "something_else": torch.zeros(1)})
    with pytest.raises(RuntimeError, match="Missing"):
        early.load_state_dict({tops: whole[tops]})


@pytest.mark.parametrize("name", ["vgg16", "alexnet", "resnet18", "resnet50-v1"])
@pytest.mark.parametrize("index", [0, -1])
def test_before_and_after_the_activation(name: str, index: int) -> None:
    torch.manual_seed(0)
    layer = list(BACKBONES[name].layers)[index]
    raw, activated = build_backbone(name, layer, False).eval(), build_backbone(name, layer, True).eval()
    activated.load_state_dict(raw.state_dict())
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        before, after = raw(images), activated(images)
    assert before.min() < 0
    assert torch.allclose(before.relu(), after)


def test_v1_and_v15_stride_in_different_places() -> None:
    for name, strides in (("resnet50", [(1, 1), (2, 2)]), ("resnet50-v1", [(2, 2), (1, 1)])):
        block = build_backbone(name).get_submodule("layer2")[0]
        assert [block.conv1.stride, block.conv2.stride] == strides
    assert build_backbone("resnet50-v1").bn1.eps == 1e-3
    assert build_backbone("resnet50").bn1.eps == 1e-5


def test_unknown_names_say_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="did you mean 'vgg16'"):
        find_backbone("vgg-16")
    with pytest.raises(ValueError, match="allowed are conv1_1"):
        build_backbone("vgg16", "conv9")


@pytest.mark.parametrize(
    "name, first, frozen",
    [("vgg16", "conv5_1", 20), ("alexnet", "conv1", 0), ("resnet50-v1", "stage4", 72), ("resnet18", "stage4.2", 39)],
)
def test_a_network_in_two_parts(name: str, first: str, frozen: int) -> None:
    torch.manual_seed(0)
    network = build_backbone(name).eval()
    lower, upper = split_backbone(network, first)
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(upper(lower(images)), network(images))
    parts = [p for part in (lower, upper) for p in part.parameters()]
    assert [id(p) for p in parts] == [id(p) for p in network.parameters()]
    assert len(list(lower.parameters())) == frozen


def test_a_layer_to_cut_at_must_be_there() -> None:
    with pytest.raises(ValueError, match=r"allowed are all, stage1, stage2, stage2\.2, stage3"):
        split_backbone(build_backbone("resnet18"), "conv5_1")


def test_googlenet_has_torchvisions_names() -> None:
    network = build_backbone("googlenet").eval()
    names = set(network.state_dict())
    assert {"conv1.conv.weight", "inception3a.branch2.1.bn.running_var", "inception5b.branch4.1.conv.weight"} <= names
    for layer, width in BACKBONES["googlenet"].layers.items():
        assert build_backbone("googlenet", layer).eval()(torch.rand(1, 3, 64, 64)).shape[1] == width
    extra = {"aux1.conv.conv.weight": torch.zeros(1), "fc.bias": torch.zeros(1)}
    network.load_state_dict({**network.state_dict(), **extra})
    with pytest.raises(ValueError, match="activated"):
        build_backbone("googlenet", activated=False)


def test_sizes_that_a_network_cannot_see_are_refused() -> None:
    with pytest.raises(ValueError, match="inception_v3 takes views of 75 pixels or more, not 64"):
        MGCAPConfig(backbone="inception_v3", size=64)
    assert MGCAPConfig(backbone="inception_v3", size=75).layer == "Mixed_6e"
