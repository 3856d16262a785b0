"""Images and labels out of datasets: samples that are dictionaries (as TorchGeo's), pairs, or images alone.

A sample is read when its image is asked for, so a dataset may be larger than the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, default_collate

from mgcap.errors import DataError, ImageError


class Samples(Sequence[Any]):
    """The images of samples, each read when it is asked for.

    Args:
        read: Gives a sample by its place in the source.
        places: Which of them, in order.
    """

    def __init__(self, read: Callable[[int], Any], places: Sequence[int]) -> None:
        self.read, self.places = read, places

    def __len__(self) -> int:
        return len(self.places)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Samples: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return Samples(self.read, self.places[index])
        return _image_of(self._sample(index))

    def part(self, members: Sequence[int]) -> Samples:
        """Some of them."""
        return Samples(self.read, [self.places[i] for i in members])

    def labels(self) -> list[Any]:
        """The label of each sample; all samples are read.

        Raises:
            DataError: If they have none.
        """
        return [_label_of(self._sample(i)) for i in range(len(self))]

    def _sample(self, index: int) -> Any:
        place = self.places[index]
        try:
            return self.read(place)
        except Exception as error:  # whatever a stranger's dataset raises
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise ImageError(f"sample {place} of the dataset cannot be read: {reason}") from error


def part_of(items: Sequence[Any], members: Sequence[int]) -> Sequence[Any]:
    """Some of the images, without reading samples."""
    return items.part(members) if isinstance(items, Samples) else [items[i] for i in members]


def as_samples(items: Any) -> Samples | None:
    """The samples of a ``Dataset``, a ``DataLoader`` or a list of dictionaries or pairs; None of anything else.

    Those of a loader that shuffles come in the order of its dataset.

    Raises:
        DataError: If they can only be gone through in turn.
    """
    if isinstance(items, Samples):
        return items
    source = items.dataset if isinstance(items, DataLoader) else items
    if isinstance(source, IterableDataset):
        raise DataError("an IterableDataset has neither length nor order; give a map-style Dataset or a list of images")
    if isinstance(items, DataLoader):
        return _of_loader(items)
    if isinstance(items, Dataset):
        if not hasattr(items, "__len__"):
            raise DataError(f"the dataset {type(items).__name__} has no length; define its __len__")
        return Samples(items.__getitem__, range(len(items)))
    if isinstance(items, Sequence) and len(items) and _is_sample(items[0]):
        return Samples(items.__getitem__, range(len(items)))
    return None


def _of_loader(loader: DataLoader[Any]) -> Samples:
    source, collate = loader.dataset, loader.collate_fn
    if loader.batch_sampler is None:
        order = list(loader.sampler)
        return Samples(lambda place: collate(source[order[place]]), range(len(order)))
    order = [index for batch in loader.batch_sampler for index in batch]
    if isinstance(loader.sampler, RandomSampler):
        order.sort()
    if collate is default_collate:
        return Samples(lambda place: source[order[place]], range(len(order)))
    return Samples(lambda place: _first(collate([source[order[place]]])), range(len(order)))


def _first(batch: Any) -> Any:
    """The only sample of a batch."""
    if isinstance(batch, dict):
        return {name: values[0] for name, values in batch.items() if name in ("image", "label")}
    return tuple(values[0] for values in batch) if isinstance(batch, list | tuple) else batch[0]


def _is_sample(item: Any) -> bool:
    return isinstance(item, dict) or (isinstance(item, tuple) and bool(item) and np.ndim(item[0]) >= 2)


def _image_of(sample: Any) -> Any:
    if isinstance(sample, dict):
        if "image" not in sample:
            raise ImageError(f"a sample must have an 'image'; this one has {', '.join(map(str, sample)) or 'nothing'}")
        return sample["image"]
    return sample[0] if isinstance(sample, list | tuple) and sample else sample


def _label_of(sample: Any) -> Any:
    label = None
    if isinstance(sample, dict):
        label = sample.get("label")
    elif isinstance(sample, list | tuple) and len(sample) > 1:
        label = sample[1]
    if label is None:
        raise DataError("the samples have no labels; give them as y")
    if isinstance(label, Tensor | np.ndarray | np.generic):
        if label.size != 1 if not isinstance(label, Tensor) else label.numel() != 1:
            raise DataError(f"a sample must have one label, not an array of shape {list(label.shape)}")
        return label.item()
    return label
