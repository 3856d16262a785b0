from __future__ import annotations

import torch

from mgcap import MGCAP, Finetune, MGCAPConfig
from mgcap.data.augmentation import augment
from mgcap.runtime import silent
from mgcap.training.feed import Feed
from mgcap.training.gradient_cache import KeptViews, SampledViews, Trunk

IMAGES = [torch.rand(3, 70, 64, generator=torch.Generator().manual_seed(k)) for k in range(5)]


def _feed(recipe: Finetune, seed: int = 3) -> Feed:
    torch.manual_seed(0)
    config = MGCAPConfig(backbone="alexnet", size=64, rotations=2, granularities=(1.0, 0.8), channels=6, num_classes=3)
    model = MGCAP(config).eval()
    return Feed(model, Trunk.of(model, recipe.train_from), recipe, IMAGES, seed)


def test_an_epoch_has_every_image_once_in_an_order_of_its_own() -> None:
    feed = _feed(Finetune(batch=2))
    orders = [[i for batch, _ in feed.batches(epoch) for i in batch] for epoch in range(4)]
    assert all(sorted(order) == [0, 1, 2, 3, 4] for order in orders) and len(set(map(tuple, orders))) > 1
    assert [len(batch) for batch, _ in feed.batches(0)] == [2, 2, 1]
    assert [batch for batch, _ in feed.batches(2, first=1)] == [orders[2][2:4], orders[2][4:]]


def test_images_are_cropped_and_flipped_by_seed_epoch_and_number() -> None:
    feed = _feed(Finetune(batch=5, crop=0.9, vertical_flip=True, random_angle=0.5))
    ((batch, views),) = feed.batches(1)
    assert isinstance(views, SampledViews) and views.field_of_view == 1.0
    for index, image in zip(batch, views.images, strict=True):
        assert torch.equal(image, augment(IMAGES[index], seed=(3, 1, index), crop=0.9, vertical=True, rotate=0.5))
    ((_, again),) = _feed(Finetune(batch=5, crop=0.9, vertical_flip=True, random_angle=0.5)).batches(1)
    assert isinstance(again, SampledViews) and torch.equal(again.images[0], views.images[0])
    plain = feed.unchanged(IMAGES)
    assert isinstance(plain, SampledViews) and torch.equal(plain.images[2], IMAGES[2]) and plain.field_of_view is None


def test_kept_views_are_mixed_too() -> None:
    feed = _feed(Finetune(batch=5, mixup=0.4, train_from="conv5", copies=1))
    feed.fill([], silent)
    ((batch, views),) = feed.batches(0)
    assert isinstance(views, KeptViews) and feed.keeper is not None
    others, shares = feed.partners(batch, 0)
    own, theirs = (feed.keeper.read([IMAGES[i] for i in some], 0) for some in (batch, others))
    for i, share in enumerate(shares.tolist()):
        assert torch.allclose(views.kept[i], share * own[i] + (1 - share) * theirs[i], atol=1e-5)
