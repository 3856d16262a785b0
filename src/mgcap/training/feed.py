"""What each step of fine-tuning sees: random versions of the images of a batch, or views that were kept.

Whatever is random comes from the seed, the epoch and the number of the image: it depends neither on the order of the
images nor on the process that looks at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from mgcap.data.augmentation import augment, mix
from mgcap.data.stream import Item, to_tensor
from mgcap.model import MGCAP
from mgcap.persistence.cache import FeatureCache
from mgcap.runtime import Progress
from mgcap.training.distributed import own_part, processes, wait_for_all
from mgcap.training.gradient_cache import Autocast, SampledViews, Trunk, Views
from mgcap.training.kept_views import ViewKeeper
from mgcap.training.recipe import Finetune


class Feed:
    """Gives the batches of each epoch.

    Args:
        model: Says the views.
        trunk: The parts of its backbones.
        recipe: Size of a batch, augmentation and copies.
        items: Training images.
        seed: Of order and augmentation.
        cache: Keeps what the frozen layers give, if copies are wanted; None keeps it in memory.
        autocast: Opens the recipe's precision.
    """

    def __init__(
        self,
        model: MGCAP,
        trunk: Trunk,
        recipe: Finetune,
        items: Sequence[Item],
        seed: int = 0,
        cache: FeatureCache | None = None,
        autocast: Autocast = nullcontext,
    ) -> None:
        self.model, self.trunk, self.recipe, self.items, self.seed = model, trunk, recipe, items, seed
        self.autocast = autocast
        self.keeper = None
        if recipe.copies:
            cache = cache or FeatureCache(memory=True)
            self.keeper = ViewKeeper(model, trunk, recipe, cache, self.augmented, autocast)

    def fill(self, others: Sequence[Item], progress: Progress) -> None:
        """Run the frozen layers once over all images and some others, if what they give is kept.

        Every process does its part.
        """
        if self.keeper is None:
            return
        everything = (self.items, others)
        own = [own_part(items) for items in everything]
        with progress("Views through the frozen layers", self.recipe.copies * sum(map(len, own))) as step:
            for items in own:
                self.keeper.fill(items, step)
        if processes() == 1:
            return
        wait_for_all()
        self.keeper.refresh()
        with progress("Views of other processes", None):
            for items in everything:
                self.keeper.fill(items)  # all there already, if processes share a disk

    def batches(self, epoch: int, first: int = 0) -> Iterator[tuple[list[int], Views]]:
        """Batches of an epoch from a step on: the numbers of their images, and what this process sees of its own."""
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.items)).tolist()
        size = self.recipe.batch
        with ThreadPoolExecutor(2) as pool:
            for start in range(first * size, len(order), size):
                batch = order[start : start + size]
                own = own_part(batch)
                if self.keeper is not None:
                    yield batch, self._kept(self.keeper, own, epoch)
                else:
                    images = list(pool.map(lambda i: self._image(i, epoch), own))
                    yield batch, SampledViews(self.model, images, self.trunk, 1.0, self.autocast)

    def unchanged(self, items: Sequence[Item]) -> Views:
        """Images as they are."""
        if self.keeper is not None:
            return self.keeper.views(self.keeper.read(items, 0))
        return SampledViews(self.model, [to_tensor(item) for item in items], self.trunk, None, self.autocast)

    def partners(self, members: Sequence[int], epoch: int) -> tuple[list[int], Tensor]:
        """For each image that which it is mixed with, and how much of the first there is: at least half."""
        others, shares = [], []
        for index in members:
            rng = np.random.default_rng([self.seed, epoch, index, 4])
            others.append(int(rng.integers(len(self.items))))
            share = rng.beta(self.recipe.mixup, self.recipe.mixup)
            shares.append(max(share, 1 - share))
        return others, torch.tensor(shares, dtype=torch.float64)

    def augmented(self, item: Item, seed: tuple[int, ...]) -> Tensor:
        """A random version of an image."""
        r = self.recipe
        crop = self.model.config.field_of_view if r.crop is None else r.crop
        flips = {"horizontal": r.horizontal_flip, "vertical": r.vertical_flip}
        return augment(to_tensor(item), seed=seed, crop=crop, rotate=r.random_angle, colour=r.colour, **flips)

    def _image(self, index: int, epoch: int) -> Tensor:
        image = self.augmented(self.items[index], (self.seed, epoch, index))
        if not self.recipe.mixup:
            return image
        (other,), shares = self.partners([index], epoch)
        return mix(image, self.augmented(self.items[other], (self.seed, epoch, index, 3)), float(shares[0]))

    def _kept(self, keeper: ViewKeeper, members: Sequence[int], epoch: int) -> Views:
        copy = epoch % self.recipe.copies
        seen = keeper.read([self.items[i] for i in members], copy)
        if self.recipe.mixup and len(members):
            others, shares = self.partners(members, epoch)
            mixed = keeper.read([self.items[i] for i in others], copy)
            seen.lerp_(mixed, (1 - shares).float().view(-1, *[1] * (seen.dim() - 1)))
        return keeper.views(seen)
