from __future__ import annotations

import sys
import types

import pytest
import torch
from torch import nn

from mgcap.backbones import BACKBONES, build_backbone, find_backbone, split_backbone

#: Parameters of torchvision's models without their classifiers (from the published totals).
PARAMETERS = {
    "vgg16": 138_357_544 - (25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000),
    "vgg19": 143_667_240 - (25088 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000),
    "alexnet": 61_100_840 - (9216 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 1000 + 1000),
    "googlenet": 6_624_904 - (1024 * 1000 + 1000),
    "resnet18": 11_689_512 - (512 * 1000 + 1000),
    "resnet34": 21_797_672 - (512 * 1000 + 1000),
    "resnet50": 25_557_032 - (2048 * 1000 + 1000),
    "resnet50-v1": 25_557_032 - (2048 * 1000 + 1000),
}


@pytest.mark.parametrize("name", BACKBONES)
def test_parameters_widths_and_sizes(name: str) -> None:
    spec = BACKBONES[name]
    net = build_backbone(name, list(spec.layers)[-1])
    assert sum(p.numel() for p in net.parameters()) == PARAMETERS[name]
    for layer in {next(iter(spec.layers)), spec.default_layer, list(spec.layers)[-1]}:
        out = build_backbone(name, layer).eval()(torch.zeros(1, 3, 64, 64))
        assert out.shape[1] == spec.width(layer)


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


def test_timm_is_lazy_and_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match="pip install timm"):
        build_backbone("timm:anything")

    class Features(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 20, 3, 2)

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [self.conv(x)]

    calls = []

    def create_model(name: str, **kwargs: object) -> nn.Module:
        calls.append((name, kwargs))
        return Features()

    fake = types.SimpleNamespace(create_model=create_model)
    monkeypatch.setitem(sys.modules, "timm", fake)
    assert build_backbone("timm:convnext_tiny", "stage3")(torch.zeros(1, 3, 32, 32)).shape[1] == 20
    assert calls == [("convnext_tiny", {"pretrained": False, "features_only": True, "out_indices": (2,)})]
    with pytest.raises(ValueError, match="stage1"):
        build_backbone("timm:convnext_tiny", "conv5")
    with pytest.raises(ValueError, match="activated"):
        build_backbone("timm:convnext_tiny", "stage3", activated=False)

    from mgcap import MGCAP, MGCAPConfig

    model = MGCAP(MGCAPConfig(backbone="timm:convnext_tiny", channels=6, size=32, rotations=1))
    assert model(torch.rand(1, 3, 32, 32)).shape == (1, 21)


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


@pytest.mark.parametrize("name", ["timm:", "timm:hf-hub:a/b", "timm:local-dir:/etc", "timm:../a"])
def test_timm_is_asked_for_models_of_its_own_only(name: str) -> None:
    with pytest.raises(ValueError, match="letters, digits"):
        find_backbone(name)
