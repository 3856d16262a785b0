from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mgcap.baselines.handcrafted import (
    BINS,
    GRID,
    ORIENTATIONS,
    SCALES,
    TOP_FREQUENCY,
    BinaryPatterns,
    ColourHistogram,
    Gist,
    grey,
)

IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def test_colours_are_numpys_histograms() -> None:
    rows = ColourHistogram().rows(IMAGES)
    for row, image in zip(rows, IMAGES, strict=True):
        expected = [np.histogram(channel.numpy(), BINS, (0, 1))[0] / 64**2 for channel in image]
        np.testing.assert_allclose(row.numpy(), np.concatenate(expected), atol=1e-6)
    assert ColourHistogram().rows(torch.ones(1, 3, 8, 8))[0, BINS - 1] == 1  # white is in the last bin


def test_binary_patterns_count_brighter_neighbours() -> None:
    """In an image that is the same everywhere every neighbour is as bright as the centre: the pattern 255."""
    assert BinaryPatterns().rows(torch.full((1, 3, 64, 64), 0.5))[0, 255] == 1
    image = torch.zeros(1, 3, 65, 65)
    image[..., 32, 32] = 1  # one bright pixel: darker neighbours all around it
    row = BinaryPatterns().rows(image)[0]
    assert float(row[0]) == pytest.approx(1 / 63**2) and float(row.sum()) == pytest.approx(1)


def test_gist_knows_frequency_and_orientation() -> None:
    y, x = np.mgrid[:256, :256]
    for scale, k in ((0, 0), (1, 3), (2, 6)):
        f, angle = TOP_FREQUENCY / 2**scale, math.pi * k / ORIENTATIONS
        wave = 0.5 + 0.4 * np.cos(2 * np.pi * f * (x * math.cos(angle) + y * math.sin(angle)))
        row = Gist().rows(torch.from_numpy(wave).float().expand(1, 3, 256, 256))[0]
        energy = row.view(SCALES, ORIENTATIONS, GRID * GRID).mean(-1)
        assert int(energy.argmax()) == scale * ORIENTATIONS + k


def test_gist_knows_where() -> None:
    image = torch.full((1, 3, 256, 256), 0.5)
    image[..., :64, :64] = torch.rand(64, 64, generator=torch.Generator().manual_seed(1))
    grid = Gist().rows(image).view(-1, GRID, GRID).mean(0)
    assert int(grid.argmax()) == 0


def test_grey_is_the_luminance() -> None:
    assert torch.allclose(grey(torch.ones(1, 3, 2, 2)), torch.ones(1, 2, 2))
    assert float(grey(torch.tensor([0.0, 1.0, 0.0]).view(1, 3, 1, 1))) == np.float32(0.587)
