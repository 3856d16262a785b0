"""Descriptors that nobody trained: colours, local binary patterns, and GIST.

Their settings follow Xia et al. (2017), who report them on UC Merced: 32 bins for each of red, green and blue; 256
patterns of 8 neighbours; Gabor energies at 4 scales and 8 orientations, averaged over a 4 x 4 grid.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.baselines.method import About, Tools, register
from mgcap.baselines.svm import DescriptorSvm, kernel_svm, linear_svm
from mgcap.persistence.cache import Recipe

BINS = 32
NEIGHBOURS, RADIUS = 8, 1
SCALES, ORIENTATIONS, GRID = 4, 8, 4
#: The highest frequency in cycles per pixel; each scale halves it.
TOP_FREQUENCY = 0.25


def grey(images: Tensor) -> Tensor:
    """Luminance ``[B, H, W]`` (ITU-R 601)."""
    weights = torch.tensor([0.299, 0.587, 0.114]).view(3, 1, 1)
    return (images * weights).sum(-3)


class ColourHistogram:
    """How often each level of each colour occurs."""

    recipe: Recipe = {"kind": "colour histogram", "bins": BINS}  # noqa: RUF012

    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        level = (images * BINS).long().clamp_(0, BINS - 1).flatten(2)
        counts = torch.zeros(*level.shape[:2], BINS).scatter_add_(2, level, torch.ones(level.shape))
        return (counts / level.shape[-1]).flatten(1)


class BinaryPatterns:
    """Histogram of local binary patterns (Ojala et al. 2002, the plain form)."""

    recipe: Recipe = {"kind": "local binary patterns", "neighbours": NEIGHBOURS, "radius": RADIUS}  # noqa: RUF012

    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        from skimage.feature import local_binary_pattern

        found = []
        for image in (grey(images) * 255).round().to(torch.uint8).numpy():
            found_here = local_binary_pattern(image, NEIGHBOURS, RADIUS, "default")  # type: ignore[no-untyped-call]
            patterns = found_here[RADIUS:-RADIUS, RADIUS:-RADIUS].astype(int)  # the rim has no neighbours
            found.append(np.bincount(patterns.ravel(), minlength=2**NEIGHBOURS) / patterns.size)
        return torch.from_numpy(np.stack(found)).float()


class Gist:
    """Energies of Gabor filters on a grid (Oliva and Torralba 2001)."""

    recipe: Recipe = {  # noqa: RUF012
        "kind": "gist",
        "scales": SCALES,
        "orientations": ORIENTATIONS,
        "grid": GRID,
        "frequency": TOP_FREQUENCY,
    }

    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        side = images.shape[-1]
        bank = gabor_bank(side)
        spectrum = torch.fft.fft2(_evened(grey(images)))
        found = [F.adaptive_avg_pool2d(torch.fft.ifft2(spectrum * g).abs()[:, None], GRID).flatten(1) for g in bank]
        return torch.cat(found, dim=1)


@cache
def gabor_bank(side: int) -> Tensor:
    """Transfer functions ``[scales * orientations, side, side]``: Gaussians in the frequency plane.

    A filter of centre frequency f is about one octave wide and covers its share of the half-circle of orientations.
    """
    axis = torch.fft.fftfreq(side)
    fy, fx = torch.meshgrid(axis, axis, indexing="ij")
    bank = []
    for scale in range(SCALES):
        f = TOP_FREQUENCY / 2**scale
        along, across = f / 3, f * math.tan(math.pi / (2 * ORIENTATIONS))
        for k in range(ORIENTATIONS):
            angle = math.pi * k / ORIENTATIONS
            u = fx * math.cos(angle) + fy * math.sin(angle)
            v = fy * math.cos(angle) - fx * math.sin(angle)
            bank.append(torch.exp(-0.5 * (((u - f) / along) ** 2 + (v / across) ** 2)))
    return torch.stack(bank)


def _evened(images: Tensor) -> Tensor:
    """Local contrast made even, as GIST does before filtering: the logarithm, less its blur, over its local spread."""
    side = images.shape[-1]
    axis = torch.fft.fftfreq(side)
    fy, fx = torch.meshgrid(axis, axis, indexing="ij")
    width = 4 / (side * math.sqrt(math.log(2)))
    low = torch.exp(-(fx**2 + fy**2) / width**2)

    def blur(x: Tensor) -> Tensor:
        return torch.real(torch.fft.ifft2(torch.fft.fft2(x) * low))

    levels = torch.log1p(images * 255)
    detail = levels - blur(levels)
    spread = blur(detail.square()).clamp_min(0).sqrt()
    return torch.div(detail, 0.2 + spread)


_KINDS = (
    ("colour", "Colour histogram", ColourHistogram, "Swain and Ballard 1991", f"{BINS} bins a channel", ()),
    ("lbp", "LBP", BinaryPatterns, "Ojala et al. 2002", f"{2**NEIGHBOURS} patterns", ("skimage",)),
    ("gist", "GIST", Gist, "Oliva and Torralba 2001", f"{SCALES} x {ORIENTATIONS} Gabor filters, 4 x 4 grid", ()),
)
for _name, _title, _kind, _source, _what, _needs in _KINDS:
    for _ending, _form, _machine in (("", "linear", linear_svm), ("-rbf", "RBF", kernel_svm)):

        def _make(tools: Tools, kind: type = _kind, machine: object = _machine) -> DescriptorSvm:
            return DescriptorSvm(tools, kind(), machine)  # type: ignore[arg-type]

        register(
            About(
                name=_name + _ending,
                title=f"{_title}, {_form} SVM",
                family="handcrafted",
                source=_source,
                what=f"{_what}; {_form} SVM",
                published=None if _ending else _title,
                needs=_needs,
            ),
            _make,
        )
