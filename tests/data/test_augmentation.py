from __future__ import annotations

import torch

from mgcap.data.augmentation import augment, mix


def _image(height: int = 20, width: int = 30) -> torch.Tensor:
    return torch.arange(3 * height * width, dtype=torch.float32).reshape(3, height, width)


def test_the_same_seed_gives_the_same_crop() -> None:
    image = _image()
    first = augment(image, seed=(0, 1, 2), crop=0.5)
    assert first.shape == (3, 10, 15)
    assert torch.equal(first, augment(image, seed=(0, 1, 2), crop=0.5))
    others = {augment(image, seed=(0, 1, k), crop=0.5)[0, 0, 0].item() for k in range(20)}
    assert len(others) > 10


def test_crops_reach_every_corner_and_flips_come_half_of_the_time() -> None:
    image = _image()
    seen = [augment(image, seed=(k,), crop=0.9, horizontal=False) for k in range(300)]
    assert {(s.min().item()) for s in seen} == {30.0 * top + left for top in range(3) for left in range(4)}
    flipped = [augment(image, seed=(k,), vertical=True) for k in range(200)]
    left_right = sum(bool((f[0, :, 0] > f[0, :, -1]).all()) for f in flipped)
    up_down = sum(bool((f[0, 0] > f[0, -1]).all()) for f in flipped)
    assert 70 < left_right < 130 and 70 < up_down < 130


def test_nothing_is_done_when_nothing_is_asked() -> None:
    image = _image()
    assert torch.equal(augment(image, seed=(5,), horizontal=False), image)
    assert augment(torch.rand(3, 1, 1), seed=(0,), crop=0.1).shape == (3, 1, 1)


def test_a_vertical_flip_does_not_change_the_other_draws() -> None:
    image = _image()
    for k in range(10):
        plain, both = augment(image, seed=(k,), crop=0.5), augment(image, seed=(k,), crop=0.5, vertical=True)
        assert torch.equal(plain, both) or torch.equal(plain, both.flip(-2))


def test_colours_change_and_places_do_not() -> None:
    """Colours go through an affine map that is the same at all places: its parts are found again by least squares."""
    image = 0.3 + 0.4 * torch.rand(3, 12, 14, generator=torch.Generator().manual_seed(0))
    assert torch.equal(augment(image, seed=(1,), colour=0.0), augment(image, seed=(1,)))
    seen = []
    for k in range(30):
        plain, changed = augment(image, seed=(k,)), augment(image, seed=(k,), colour=0.2)
        assert changed.shape == plain.shape and changed.min() >= 0 and changed.max() <= 1
        inside = ((changed > 0) & (changed < 1)).all(0).flatten()
        design = torch.cat((plain.flatten(1).T[inside], torch.ones(int(inside.sum()), 1)), 1)
        wanted = changed.flatten(1).T[inside]
        found = torch.linalg.lstsq(design, wanted).solution
        assert torch.allclose(design @ found, wanted, atol=1e-4)
        seen.append(changed.mean().item() / plain.mean().item())
    assert 0.6 < min(seen) < 0.95 and 1.05 < max(seen) < 1.5


def test_images_of_any_size_are_mixed() -> None:
    image, other = torch.rand(3, 8, 10), torch.rand(3, 8, 10)
    assert torch.allclose(mix(image, other, 0.75), 0.75 * image + 0.25 * other)
    flat = mix(image, torch.ones(3, 5, 31), 0.5)
    assert torch.allclose(flat, 0.5 * image + 0.5, atol=1e-6)
