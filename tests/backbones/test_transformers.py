"""Tiny random networks of transformers, written by its own ``save_pretrained`` and read from disk."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mgcap import MGCAPConfig, SceneClassifier
from mgcap.backbones import find_backbone, hub, split_backbone
from mgcap.backbones.pretrained import load_weights
from mgcap.backbones.record import IMAGENET_MEAN
from mgcap.errors import BundleError, ValuesError, WeightsError
from mgcap.inference.engines.openvino import OpenVinoEngine
from mgcap.persistence.bundle import read_bundle
from mgcap.runtime import silent
from tests.conftest import TINY
from tests.mutations import rewrite

transformers = pytest.importorskip("transformers")

_BLOCKS = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 48, "patch_size": 8}
_STAGES = {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 2, 1]}
_WIDE = {"intermediate_size": 32}
_SWIN = {"embed_dim": 8, "depths": [1, 2, 1], "num_heads": [1, 2, 2], "window_size": 4, "image_size": 64}
#: Networks by the name of their class, with the values of their configuration.
NETWORKS: dict[str, dict[str, Any]] = {
    "ViTModel": _BLOCKS | _WIDE,
    "DeiTModel": _BLOCKS | _WIDE,
    "Dinov2Model": _BLOCKS | {"mlp_ratio": 2},
    "Dinov2WithRegistersModel": _BLOCKS | {"mlp_ratio": 2},
    "DINOv3ViTModel": _BLOCKS | _WIDE | {"num_register_tokens": 4},
    "CLIPVisionModel": _BLOCKS | _WIDE,
    "ConvNextModel": _STAGES,
    "ConvNextV2Model": _STAGES,
    "DINOv3ConvNextModel": _STAGES,
    "ResNetModel": _STAGES | {"embedding_size": 8},
    "SwinModel": _SWIN,
}
Write = Callable[..., Any]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a network of a class to the folder ``tmp_path / "net"``."""

    def save(kind: str, **preprocessing: Any) -> Any:
        torch.manual_seed(0)
        made = getattr(transformers, kind.replace("Model", "Config"))(**NETWORKS[kind])
        network = getattr(transformers, kind)(made).eval()
        network.save_pretrained(tmp_path / "net")
        if preprocessing:
            (tmp_path / "net" / "preprocessor_config.json").write_text(json.dumps(preprocessing))
        return network

    return save


def _hidden_states(kind: str, network: Any, images: torch.Tensor) -> dict[str, torch.Tensor]:
    """What transformers itself gives for each layer."""
    given: dict[str, Any] = {"output_hidden_states": True}
    if kind in ("ViTModel", "DeiTModel", "CLIPVisionModel", "SwinModel"):
        given["interpolate_pos_encoding"] = True
    if kind == "SwinModel":
        given["output_hidden_states_before_downsampling"] = True
    out = network(images, **given)
    blocks = len(NETWORKS[kind].get("depths", range(3)))
    states = out.reshaped_hidden_states if kind == "SwinModel" else out.hidden_states
    name = "stage" if "depths" in NETWORKS[kind] else "block"
    found = {f"{name}{i}": state for i, state in enumerate(states[-blocks:], start=1)}
    return found if "hidden_sizes" in NETWORKS[kind] else {**found, "last": out.last_hidden_state}


@pytest.mark.parametrize("kind", NETWORKS)
@torch.no_grad()
def test_features_are_the_hidden_states(kind: str, write: Write, tmp_path: Path) -> None:
    theirs = write(kind)
    name = f"hf:{tmp_path / 'net'}"
    record, weights = find_backbone(name), load_weights(name)
    for size in (64, 96) if kind == "SwinModel" else (48, 80):  # as it was trained, and larger
        images = torch.randn(2, 3, size, size)
        wanted = _hidden_states(kind, theirs, images)
        assert list(record.layers) == list(wanted)
        for layer, width in record.layers.items():
            ours = record.cut(layer).eval()
            ours.load_state_dict(weights.state)
            features = ours(images)
            state = wanted[layer]
            if state.ndim == 3:  # the tokens of patches come last
                state = (
                    state[:, -features.shape[2] * features.shape[3] :].transpose(1, 2).unflatten(2, features.shape[2:])
                )
            assert features.shape[1] == width
            torch.testing.assert_close(features, state, rtol=1e-4, atol=1e-5)
            for first in ["all", *[step for step, _ in ours.steps()]]:
                lower, upper = split_backbone(ours, first)
                assert torch.equal(upper(lower(images)), features)


def test_statistics_of_the_input(write: Write, tmp_path: Path) -> None:
    name = f"hf:{tmp_path / 'net'}"
    write("ConvNextModel")
    assert find_backbone(name).mean == IMAGENET_MEAN
    write("ConvNextModel", image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4])
    assert find_backbone(name).mean == (0.5, 0.4, 0.3) and find_backbone(name).std == (0.2, 0.3, 0.4)
    write("ConvNextModel", image_mean=[0.5, 0.4, 0.3], do_normalize=False)
    assert find_backbone(name).mean == (0, 0, 0) and find_backbone(name).std == (1, 1, 1)
    write("ConvNextModel", image_mean=["a", 0.4, 0.3])
    with pytest.raises(ValueError, match=r"mean\.0.* is not that of a network"):
        find_backbone(name)


def test_the_vision_part_of_clip(tmp_path: Path) -> None:
    vision = transformers.CLIPVisionConfig(**NETWORKS["CLIPVisionModel"]).to_dict()
    text = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9}
    whole = transformers.CLIPModel(transformers.CLIPConfig(vision_config=vision, text_config=text))
    whole.save_pretrained(tmp_path)
    state = load_weights(f"hf:{tmp_path}").state
    theirs = whole.vision_model.embeddings.patch_embedding.weight
    assert torch.equal(state["network.embeddings.patch_embedding.weight"], theirs)


def test_sizes_are_multiples_of_the_patch(write: Write, tmp_path: Path) -> None:
    write("ViTModel")
    name = f"hf:{tmp_path / 'net'}"
    with pytest.raises(ValueError, match="takes multiples of 8 pixels, not 100; take 96 or 104"):
        MGCAPConfig(backbone=name, size=100, channels=8)
    config = MGCAPConfig(backbone=name, channels=8)
    assert config.layer == "last" and config.replace(backbone="vgg16", channels=128).architecture is None
    with pytest.raises(ValueError, match="has no layer 'block4'; allowed are block1, block2, block3, last"):
        config.replace(layer="block4")
    with pytest.raises(ValueError, match="takes square images"):
        find_backbone(name).cut()(torch.zeros(1, 3, 48, 56))


def test_what_cannot_be_used_says_so(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no folder /no/where"):
        find_backbone("hf:/no/where")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ValueError, match="of the kind bert; allowed are vit,"):
        find_backbone(f"hf:{tmp_path}")
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(WeightsError, match="cannot be read as JSON"):
        find_backbone(f"hf:{tmp_path}")
    write("ConvNextModel")
    (tmp_path / "net" / "model.safetensors").rename(tmp_path / "net" / "pytorch_model.bin")  # a pickle, by its name
    with pytest.raises(WeightsError, match=r"the weights of 'hf:.*' cannot be had"):
        load_weights(f"hf:{tmp_path / 'net'}")

    def offline(*given: object) -> None:
        from huggingface_hub.errors import LocalEntryNotFoundError

        raise LocalEntryNotFoundError("outgoing traffic is disabled\nand more")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", offline)
    with pytest.raises(WeightsError, match=r"'hf:no/such' is not in the cache .*HF_HUB_OFFLINE") as caught:
        find_backbone("hf:no/such")
    assert len(str(caught.value).splitlines()) == 1


def test_a_folder_that_is_missing_is_not_looked_for_on_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models" / "dino").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", None)
    for name in (f"{tmp_path}/models/dina", "./models/dina", "~/models/dina", "models/dina", "../none/dina"):
        hint = r" \(did you mean 'dino'\?\)" if "none" not in name else ""
        with pytest.raises(ValuesError, match=rf"^backbone: there is no folder \S+dina{hint}; hf:NAME takes"):
            MGCAPConfig(backbone=f"hf:{name}")


def test_weights_that_are_missing_are_not_made_up(write: Write, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    write("ConvNextModel")
    file = tmp_path / "net" / "model.safetensors"
    state = load_file(file)
    missing = next(key for key in state if "stages.1" in key)
    save_file({key: tensor for key, tensor in state.items() if key != missing}, file, {"format": "pt"})
    with pytest.raises(WeightsError, match="do not fit"):
        SceneClassifier(**TINY | {"backbone": f"hf:{tmp_path / 'net'}", "weights": "imagenet"}).fit(*_images())


def _images() -> tuple[torch.Tensor, list[str]]:
    return torch.rand(6, 3, 64, 64, generator=torch.Generator().manual_seed(0)), list("aabbab")


@pytest.fixture
def saved(write: Write, tmp_path: Path) -> tuple[Path, SceneClassifier]:
    """A model whose network came from a folder that is gone."""
    write("ViTModel", image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4])
    given = TINY | {"backbone": f"hf:{tmp_path / 'net'}", "weights": "imagenet", "cache": False}
    model = SceneClassifier(**given).fit(*_images())
    model.save(tmp_path / "m.mgcap")
    shutil.rmtree(tmp_path / "net")
    return tmp_path / "m.mgcap", model


def _nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise AssertionError("a model file made the loader look for a network")

    for name in ("read_architecture", "_from_folder", "_from_hub"):
        monkeypatch.setattr(hub, name, fail)
    monkeypatch.setattr("mgcap.backbones.transformers.read_architecture", fail)


def test_a_saved_model_carries_its_network(
    saved: tuple[Path, SceneClassifier], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = saved
    _nobody_asks(monkeypatch)
    loaded = SceneClassifier.load(path, engine="torch")
    images, _ = _images()
    np.testing.assert_allclose(loaded.predict_proba(images), model.predict_proba(images), rtol=1e-6)
    assert loaded.model_.config.backbone == loaded.backbone_["name"] == "hf:net"
    assert loaded.model_.mean.flatten().tolist() == pytest.approx([0.5, 0.4, 0.3])
    assert str(tmp_path).encode() not in path.read_bytes()
    loaded.save(tmp_path / "again.mgcap")
    assert read_bundle(tmp_path / "again.mgcap").config == loaded.model_.config


def _say(**changes: Any) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        found = json.loads(header["config"]["architecture"])
        found |= {key: value for key, value in changes.items() if key in found}
        found["values"] |= changes.get("of", {})
        header["config"]["architecture"] = json.dumps(found)

    return change


def _name(name: str) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        _say(name=name)(header)
        header["config"]["backbone"] = header["backbone"]["name"] = name

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["config"].pop("architecture"),
        lambda header: header["config"].update(architecture=None),
        lambda header: header["config"].update(architecture=["x"]),
        lambda header: header["config"].update(architecture="{}"),
        lambda header: header["config"].update(architecture="[" * 15_000),
        _say(name="hf:other/net"),
        _say(kind="bert"),
        _name("hf:/etc"),
        _name("hf:.."),
        _name("hf:~/net"),
        _name("hf:a/b/c"),
        _say(of={"num_hidden_layers": 10_000}),
        _say(of={"num_hidden_layers": True}),
        _say(of={"num_hidden_layers": 0}),
        _say(of={"hidden_size": 60_000}),
        _say(of={"hidden_size": 1e300}),
        _say(of={"num_attention_heads": 0}),
        _say(of={"num_attention_heads": 3}),
        _say(of={"hidden_act": "no_such"}),
        _say(of={"hidden_act": "https://x"}),
        _say(of={"patch_size": [8, 8]}),
        _say(of={"intermediate_size": 33}),
        _say(std=[0.2, 0.0, 0.1]),
        _say(mean=[0.2, 0.1]),
    ],
)
def test_a_strangers_file_makes_nobody_look(
    change: Callable[[dict[str, Any]], None],
    saved: tuple[Path, SceneClassifier],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, _ = saved
    rewrite(path, lambda header, tensors: change(header))
    _nobody_asks(monkeypatch)
    with pytest.raises(BundleError) as caught:
        SceneClassifier.load(path, engine="torch")
    assert len(str(caught.value).splitlines()) == 1


def test_a_strangers_file_without_weights_makes_nobody_look(
    saved: tuple[Path, SceneClassifier], monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_weights(header: dict[str, Any], tensors: dict[str, Any]) -> None:
        header["backbone"]["stock"] = True
        for name in [name for name in tensors if name.startswith("backbones.")]:
            del tensors[name]

    path, _ = saved
    rewrite(path, without_weights)
    _nobody_asks(monkeypatch)
    with pytest.raises(BundleError, match=r"other .* weights than the ones at hand"):
        SceneClassifier.load(path, engine="torch")


def test_values_that_are_not_of_the_network_are_left_out() -> None:
    """Such as those that name code, kernels on the hub or quantisation."""
    odd = {"auto_map": "x", "_attn_implementation": "someone/kernel", "quantization_config": "x", "dtype": "float16"}
    made = hub.configuration("vit", NETWORKS["ViTModel"] | odd)
    assert made.hidden_size == 16 and made.dtype is None and not hasattr(made, "auto_map")
    assert made._attn_implementation is None and not hasattr(made, "quantization_config")


def test_fine_tuning_the_last_blocks(write: Write, tmp_path: Path) -> None:
    write("ViTModel")
    given = TINY | {"backbone": f"hf:{tmp_path / 'net'}", "weights": "imagenet", "cache": False}
    before = load_weights(given["backbone"]).state
    images, labels = _images()
    recipe = {"epochs": 1, "train_from": "block3"}
    after = SceneClassifier(**given, finetune=recipe).fit(images, labels).model_.backbones[0].state_dict()
    changed = {key for key, tensor in after.items() if not torch.equal(tensor, before[key])}
    assert changed and all("layers.2." in key or "layernorm" in key for key in changed)


@pytest.mark.parametrize("kind", ["ViTModel", "ConvNextModel"])
@torch.no_grad()
def test_openvino_computes_the_same(kind: str, write: Write, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    write(kind)
    name = f"hf:{tmp_path / 'net'}"
    network = find_backbone(name).cut().eval()
    network.load_state_dict(load_weights(name).state)
    views = torch.randn(6, 3, 48, 48)
    wanted = network(views).flatten(2)
    exact = OpenVinoEngine([network], 48, None, silent).features(views, 0)
    torch.testing.assert_close(exact, wanted, rtol=1e-3, atol=1e-4)
    rough = OpenVinoEngine([network], 48, lambda: list(views), silent).features(views, 0)
    assert 0 < (rough - wanted).norm() < 0.1 * wanted.norm()
