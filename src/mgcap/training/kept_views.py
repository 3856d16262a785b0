"""What frozen layers give for every view of an image, kept so that they run once and not in each epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from mgcap.backbones.pretrained import state_hash
from mgcap.data.stream import Item, to_tensor
from mgcap.errors import ImageError
from mgcap.inference.fingerprints import rule_fingerprints
from mgcap.model import MGCAP
from mgcap.persistence.cache import FeatureCache, RowStore, content_key
from mgcap.training.gradient_cache import Autocast, KeptViews, SampledViews, Trunk
from mgcap.training.recipe import Finetune

#: Images in one chunk of the cache: each may take several megabytes.
CHUNK = 4

_FIELDS = {"size", "frame", "corners", "backbone", "granularities", "rotations", "field_of_view"}


class ViewKeeper:
    """Keeps, for each image and copy, the views as the frozen layers show them.

    Copy 0 is the image itself; the others are augmented. What they are depends on the image alone, so that other splits
    of the same images find them.

    Args:
        model: Says the views.
        trunk: Its frozen layers.
        recipe: Number of copies and their augmentation.
        cache: Where they are kept.
        augmented: Gives a random version of an image for a seed.
        autocast: Opens the recipe's precision.
    """

    def __init__(
        self,
        model: MGCAP,
        trunk: Trunk,
        recipe: Finetune,
        cache: FeatureCache,
        augmented: Callable[[Item, tuple[int, ...]], Tensor],
        autocast: Autocast = nullcontext,
    ) -> None:
        self.model, self.trunk, self.augmented, self.autocast = model, trunk, augmented, autocast
        config = model.config
        rules = rule_fingerprints(config)
        shared = {
            "kind": "views through frozen layers",
            **config.model_dump(mode="json", include=_FIELDS),
            **({} if config.architecture is None else {"architecture": config.architecture}),
            **({"network": rules["backbone"]} if "backbone" in rules else {}),
            "before": recipe.train_from,
            "weights": [state_hash(frozen.state_dict()) for frozen in trunk.frozen],
            "engine": f"torch {torch.__version__} {model.mean.device.type} {recipe.precision}",
        }
        changes = recipe.model_dump(include={"crop", "horizontal_flip", "vertical_flip"})
        changes |= {"turned before the crop": recipe.random_angle} if recipe.random_angle else {}
        changes |= {"colour": recipe.colour} if recipe.colour else {}
        self.stores: list[RowStore] = [
            cache.store({**shared, "copy": copy, **(changes if copy else {})}) for copy in range(recipe.copies)
        ]
        with torch.no_grad():
            seen = trunk.frozen[0](torch.zeros(1, 3, config.size, config.size, device=model.mean.device))
        self.size: tuple[int, int] = (seen.shape[2], seen.shape[3])
        self.every = _positions_that_count(trunk.trained[0], seen)
        thin = seen[..., :: self.every, :: self.every]
        self.shape = (len(config.granularities), config.rotations, *thin.shape[1:])

    def fill(self, items: Sequence[Item], on_step: Callable[[int], None] = lambda n: None) -> None:
        """Compute what is missing for these images."""
        for copy, store in enumerate(self.stores):
            for start in range(0, len(items), CHUNK):
                some = items[start : start + CHUNK]
                todo = {key: item for item in some if (key := self._key(item)) not in store}
                if todo:
                    images = [
                        self.augmented(item, (copy, int.from_bytes(key[:8], "big"))) if copy else to_tensor(item)
                        for key, item in todo.items()
                    ]
                    field = 1.0 if copy else None
                    views = SampledViews(self.model, images, self.trunk, field, self.autocast)
                    every = self.every
                    rows = [views.at(g, range(self.shape[1]))[..., ::every, ::every] for g in range(self.shape[0])]
                    each = torch.stack([r.float().cpu().reshape(len(images), -1) for r in rows], dim=1)
                    store.add(list(todo), each.flatten(1))
                on_step(len(some))

    def refresh(self) -> None:
        """Find what other processes have written."""
        for store in self.stores:
            store.refresh()

    def read(self, items: Sequence[Item], copy: int) -> Tensor:
        """``[B, S, R, C, h, w]``, thinned, of images that :meth:`fill` has seen."""
        if not items:
            return torch.zeros(0, *self.shape)
        return self.stores[copy].read([self._key(item) for item in items]).view(len(items), *self.shape)

    def views(self, read: Tensor) -> KeptViews:
        """What the trained layers see of images that were read."""
        return KeptViews(read.to(self.model.mean.device), self.size)

    @staticmethod
    def _key(item: Item) -> bytes:
        key = content_key(item)
        if key is None:
            raise ImageError(f"{item}: cannot be read any more")
        return key


@torch.no_grad()
def _positions_that_count(trained: nn.Module, seen: Tensor) -> int:
    """2 if layers look at every other row and column only, as 1 x 1 convolutions of stride 2 do; otherwise 1."""
    whole = torch.randn(seen.shape, generator=torch.Generator().manual_seed(0)).to(seen)
    thinned = torch.zeros_like(whole)
    thinned[..., ::2, ::2] = whole[..., ::2, ::2]
    return 2 if torch.equal(trained(whole), trained(thinned)) else 1
