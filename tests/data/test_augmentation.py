from __future__ import annotations

import torch
from scipy.ndimage import rotate

from mgcap.data.augmentation import augment, mix, rotated


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


def test_a_rotated_image_is_what_scipy_rotates() -> None:
    """Inside the circle that stays in the image; a quarter of a square image is exact everywhere."""
    square = torch.rand(3, 21, 21, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(rotated(square, 90), square.rot90(-1, (-2, -1)), atol=1e-5)
    wide = torch.rand(3, 24, 40, generator=torch.Generator().manual_seed(1))
    expected = rotate(wide.numpy(), -33, axes=(2, 1), reshape=False, order=1)
    y, x = torch.meshgrid(torch.arange(24) - 11.5, torch.arange(40) - 19.5, indexing="ij")
    inside = (x**2 + y**2).sqrt() < 11
    assert torch.allclose(rotated(wide, 33)[:, inside], torch.from_numpy(expected)[:, inside], atol=1e-4)
    assert rotated(wide, 33).min() >= 0 and (rotated(torch.ones(3, 24, 40), 33) - 1).abs().max() < 1e-5


def test_rotations_come_before_the_crop_and_by_any_angle() -> None:
    image = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(2))
    seen = [augment(image, seed=(k,), horizontal=False, rotate=1.0) for k in range(8)]
    assert len({round(s.sum().item(), 3) for s in seen}) == 8
    middle = [s[:, 15:17, 15:17].mean().item() for s in seen]
    assert max(middle) - min(middle) < 0.35  # the centre stays where it is


def test_a_share_of_the_images_is_rotated_by_the_angles_of_all() -> None:
    image = torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(3))
    always = [augment(image, seed=(k,), horizontal=False, rotate=1.0) for k in range(200)]
    seldom = [augment(image, seed=(k,), horizontal=False, rotate=0.25) for k in range(200)]
    upright = [torch.equal(s, image) for s in seldom]
    assert 0.65 < sum(upright) / 200 < 0.85 and not any(torch.equal(a, image) for a in always)
    assert all(torch.equal(s, image if plain else a) for s, a, plain in zip(seldom, always, upright, strict=True))
