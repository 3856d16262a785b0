from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mgcap import MGCAP, Finetune, MGCAPConfig
from mgcap.backbones import BACKBONES, OWN
from mgcap.errors import ImageError
from mgcap.persistence.cache import FeatureCache
from mgcap.training.gradient_cache import SampledViews, Trunk, logits_of
from mgcap.training.kept_views import ViewKeeper

IMAGES = [torch.rand(3, 70, 64, generator=torch.Generator().manual_seed(k)) for k in range(3)]


def _keeper(backbone: str, first: str, folder: Path, copies: int = 1) -> tuple[MGCAP, Trunk, ViewKeeper]:
    torch.manual_seed(0)
    config = MGCAPConfig(backbone=backbone, size=64, rotations=2, granularities=(1.0, 0.8), channels=6, num_classes=3)
    model = MGCAP(config).eval()
    trunk = Trunk.of(model, first)
    recipe = Finetune(train_from=first, copies=copies)

    def augmented(item: object, seed: tuple[int, ...]) -> torch.Tensor:
        return torch.as_tensor(item).flip(-1)

    return model, trunk, ViewKeeper(model, trunk, recipe, FeatureCache(folder), augmented)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "backbone, first, every", [("alexnet", "conv3", 1), ("resnet50-v1", "stage4", 2), ("resnet50", "stage4", 1)]
)
def test_what_is_kept_gives_the_same_logits(backbone: str, first: str, every: int, tmp_path: Path) -> None:
    """In a ResNet of the first version a stage begins with strides, so a quarter of its input is enough."""
    model, trunk, keeper = _keeper(backbone, first, tmp_path)
    keeper.fill(IMAGES)
    assert keeper.every == every
    kept = logits_of(model, keeper.views(keeper.read(IMAGES, 0)), trunk, 8)
    torch.testing.assert_close(
        kept, logits_of(model, SampledViews(model, IMAGES, trunk), trunk, 8), rtol=1e-2, atol=1e-3
    )
    rows = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert keeper.shape[-1] == -(-keeper.size[-1] // every)
    assert rows == pytest.approx(2 * 3 * math.prod(keeper.shape), rel=0.05)


def test_copies_are_augmented_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *_, keeper = _keeper("alexnet", "conv3", tmp_path, copies=2)
    keeper.fill(IMAGES)
    plain, changed = keeper.read(IMAGES, 0), keeper.read(IMAGES, 1)
    assert not torch.allclose(plain, changed)
    *_, again = _keeper("alexnet", "conv3", tmp_path, copies=2)
    monkeypatch.setattr(SampledViews, "at", None)  # nothing is computed again
    again.fill(IMAGES[::-1])
    assert torch.equal(again.read(IMAGES, 1), changed)
    assert again.read([], 0).shape == (0, *again.shape)


def test_rows_of_an_edited_backbone_are_not_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [_keeper("alexnet", "conv3", tmp_path)[2].stores[0].folder]
    for mean in ((0.1, 0.2, 0.3), (0.1, 0.2, 0.4)):
        monkeypatch.setitem(BACKBONES, "alexnet", replace(OWN["alexnet"], mean=mean))
        folders.append(_keeper("alexnet", "conv3", tmp_path)[2].stores[0].folder)
    assert len(set(folders)) == 3


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    *_, keeper = _keeper("alexnet", "conv3", tmp_path)
    with pytest.raises(ImageError, match="cannot be read any more"):
        keeper.read([tmp_path / "gone.png"], 0)
