from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from mgcap import SceneClassifier, SceneDescriptor
from mgcap.data.samples import Samples, part_of
from mgcap.data.stream import check_items, to_tensor
from mgcap.errors import DataError, ImageError
from tests.conftest import TINY

PIXELS = np.random.default_rng(0).integers(0, 256, (12, 64, 64, 3), dtype=np.uint8)
PIXELS[1::2] //= 4  # odd ones are dark
LABELS = [i % 2 for i in range(12)]
GIVEN: dict[str, Any] = {**TINY, "cache": False, "regularisation": 1e-6}


class Scenes(Dataset):  # type: ignore[type-arg]
    """Makes samples of a kind and remembers which were asked for."""

    def __init__(self, kind: str) -> None:
        self.kind, self.asked = kind, []  # type: ignore[var-annotated]

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < 12:
            raise IndexError(index)
        self.asked.append(index)
        image = torch.from_numpy(PIXELS[index]).permute(2, 0, 1)
        return {
            "dict": {"image": image.float() / 255, "label": torch.tensor(LABELS[index]), "bbox": (0, 0)},
            "dict of bytes": {"image": image, "label": LABELS[index]},
            "pair": (image, LABELS[index]),
            "picture": (Image.fromarray(PIXELS[index]), LABELS[index]),
            "image": image,
        }[self.kind]


def _last_first(samples: list[Any]) -> dict[str, torch.Tensor]:
    return {"image": torch.stack([s[0] for s in samples]) / 255, "label": torch.tensor([s[1] for s in samples])}


SOURCES = {
    "dictionaries": lambda: Scenes("dict"),
    "bytes": lambda: Scenes("dict of bytes"),
    "pairs": lambda: Scenes("pair"),
    "pictures": lambda: Scenes("picture"),
    "a tensor dataset": lambda: TensorDataset(torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.tensor(LABELS)),
    "a part of a whole": lambda: Subset(ConcatDataset([Scenes("pair"), Scenes("pair")]), range(12)),
    "a loader": lambda: DataLoader(Scenes("dict"), batch_size=5),
    "a loader that shuffles": lambda: DataLoader(Scenes("dict"), batch_size=5, shuffle=True),
    "a loader of single images": lambda: DataLoader(Scenes("pair"), batch_size=None),
    "a loader with batches of its own": lambda: DataLoader(Scenes("pair"), batch_size=4, collate_fn=_last_first),
    "a list of dictionaries": lambda: [Scenes("dict")[i] for i in range(12)],
    "a list of pairs": lambda: [Scenes("pair")[i] for i in range(12)],
}


@pytest.fixture(scope="module")
def expected() -> SceneClassifier:
    return SceneClassifier(**GIVEN).fit(PIXELS, LABELS)


@pytest.mark.parametrize("name", SOURCES)
def test_datasets_are_images(name: str, expected: SceneClassifier) -> None:
    source = SOURCES[name]()
    items = check_items(source)
    assert torch.allclose(torch.stack([to_tensor(i) for i in items]), torch.stack([to_tensor(i) for i in PIXELS]))
    model = SceneClassifier(**GIVEN).fit(source)
    assert model.classes_.tolist() == [0, 1]
    assert np.allclose(model.predict_proba(source), expected.predict_proba(PIXELS), atol=1e-5)
    assert model.score(source) == expected.score(PIXELS, LABELS)


def test_labels_may_be_given_beside_a_dataset() -> None:
    names = ["bright" if i % 2 == 0 else "dark" for i in range(12)]
    assert SceneClassifier(**GIVEN).fit(Scenes("image"), names).classes_.tolist() == ["bright", "dark"]
    assert SceneDescriptor(**TINY, cache=False).fit_transform(Scenes("image")).shape == (12, 45)
    with pytest.raises(DataError, match="the samples have no labels; give them as y"):
        SceneClassifier(**GIVEN).fit(Scenes("image"))
    with pytest.raises(ValueError, match="requires y"):
        SceneClassifier(**GIVEN).fit(PIXELS)


def test_a_sampler_says_which_images_and_in_which_order() -> None:
    loader = DataLoader(Scenes("pair"), batch_size=2, sampler=[5, 3, 8])  # type: ignore[arg-type]
    found = check_items(loader)
    assert len(found) == 3 and torch.equal(found[1], torch.from_numpy(PIXELS[3]).permute(2, 0, 1))
    assert len(check_items(DataLoader(Scenes("pair"), batch_size=5, drop_last=True))) == 10


def test_samples_are_read_when_they_are_asked_for() -> None:
    source = Scenes("pair")
    items = check_items(source)
    assert isinstance(items, Samples) and source.asked == []
    some = part_of(part_of(items, [9, 2, 4])[1:], [1])
    assert source.asked == [] and len(some) == 1
    assert torch.equal(some[0], torch.from_numpy(PIXELS[4]).permute(2, 0, 1)) and source.asked == [4]
    assert part_of(["a", "b", "c"], [2, 0]) == ["c", "a"]


def test_a_dataset_may_be_larger_than_the_memory() -> None:
    class Large(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 60

        def __getitem__(self, index: int) -> Any:
            return np.full((1000, 1000, 3), index, np.uint8), index % 2

    model = SceneClassifier(**{**GIVEN, "rotations": 16})  # one image at a time
    tracemalloc.start()
    model.fit(Large())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 60e6 < 180e6  # bytes of all images


def test_what_cannot_be_used_is_said_in_one_sentence() -> None:
    class Endless(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(PIXELS)

    class Short(Dataset):  # type: ignore[type-arg]
        def __getitem__(self, index: int) -> Any:
            return PIXELS[index]

    class Broken(Scenes):
        def __getitem__(self, index: int) -> Any:
            raise RuntimeError("disk\non fire")

    class Other(Scenes):
        def __getitem__(self, index: int) -> Any:
            return {"pixels": PIXELS[index], "label": np.zeros(3)}

    for source, sentence in (
        (Endless(), "an IterableDataset has neither length nor order; give a map-style Dataset"),
        (DataLoader(Endless()), "an IterableDataset"),
        (Short(), "the dataset Short has no length"),
        (Subset(Scenes("pair"), []), "no images were given"),
        (Scenes("dict")[0], "give a list of samples, not a single one"),
    ):
        with pytest.raises(DataError, match=sentence):
            check_items(source)
    with pytest.raises(ImageError, match=r"^sample 0 of the dataset cannot be read: RuntimeError: disk on fire$"):
        SceneClassifier(**GIVEN).fit(Broken("pair"))
    with pytest.raises(ImageError, match="a sample must have an 'image'; this one has pixels, label"):
        SceneClassifier(**GIVEN).fit(Other("pair"), LABELS)
    with pytest.raises(DataError, match=r"one label, not an array of shape \[3\]"):
        SceneClassifier(**GIVEN).fit(Other("pair"))
    with pytest.raises(ImageError, match=r"must lie in \[0, 1\], not from .* divide it by its white value"):
        SceneClassifier(**GIVEN).fit([{"image": 255 * torch.rand(3, 64, 64)}] * 4, [0, 1, 0, 1])
