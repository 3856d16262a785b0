r"""Visual words: local descriptors (dense SIFT, or the positions of a convolutional layer) encoded with a codebook.

* BoVW (Sivic and Zisserman 2003; Yang and Newsam 2010): how often each word is the nearest one;
* spatial pyramid (Lazebnik et al. 2006): the same in 1 x 1, 2 x 2 and 4 x 4 cells, weighted 1/4, 1/4 and 1/2;
* LLC (Wang et al. 2010): each descriptor as an affine combination of its 5 nearest words,
  :math:`(C + \beta\,\mathrm{tr}\,C\,I)\,w = 1` with :math:`C` the covariance of the words around the descriptor,
  the largest weight of each word over the image;
* CNN + BoVW (Cheng et al. 2017): words of convolutional features.

Codebooks are learnt by k-means on descriptors of the training images. Histograms enter the linear SVM by their square
roots (the Hellinger kernel), which Xia et al. do not mention and which LIBLINEAR needs to converge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from mgcap.baselines.method import SIDE, About, Descriptor, Tools, register
from mgcap.baselines.networks import NETWORKS, PUBLISHED, Layer
from mgcap.baselines.svm import SvmMethod
from mgcap.data.stream import Item
from mgcap.persistence.cache import Recipe

#: Dense SIFT: patches of 16 x 16 pixels every 8.
PATCH, STRIDE = 16, 8
#: Words of a codebook; with a pyramid, whose vector is 21 times as long, fewer.
WORDS, PYRAMID_WORDS = 1024, 256
#: Descriptors that k-means sees.
SAMPLES = 100_000
#: LLC: nearest words and the weight of the regulariser.
NEAREST, BETA = 5, 1e-4
CELLS = (1, 2, 4)
CELL_WEIGHTS = (0.25, 0.25, 0.5)
#: Images that are encoded together.
BLOCK = 16


class DenseSift:
    """SIFT on a grid, upright, as ``[positions * 128]``."""

    length = 128
    recipe: Recipe = {"kind": "dense sift", "patch": PATCH, "stride": STRIDE}  # noqa: RUF012

    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        import cv2

        from mgcap.baselines.handcrafted import grey

        sift: Any = cv2.SIFT_create()  # type: ignore[attr-defined]
        centres = range(PATCH // 2, SIDE - PATCH // 2 + 1, STRIDE)
        size = PATCH / 6  # OpenCV looks at six times the diameter of a key point
        points = [cv2.KeyPoint(float(x), float(y), size, 0) for y in centres for x in centres]
        found = []
        for image in (grey(images) * 255).round().to(torch.uint8).numpy():
            _, descriptors = sift.compute(image, points)
            found.append(F.normalize(torch.from_numpy(descriptors), dim=1).flatten())
        return torch.stack(found)


def positions(features: Tensor) -> Tensor:
    """A map ``[B, C, h, w]`` as its positions one after the other, ``[B, h * w * C]``, each of unit length."""
    each = features.flatten(2).mT
    return F.normalize(each, dim=-1).flatten(1)


def nearest_words(local: Tensor, words: Tensor, count: int) -> Tensor:
    """The numbers ``[..., count]`` of the words nearest to descriptors ``[..., d]``."""
    distance = words.square().sum(1) - 2 * local @ words.T
    return distance.topk(count, largest=False).indices


def histogram(local: Tensor, words: Tensor) -> Tensor:
    """``[B, n, d]`` to the share of each word, ``[B, k]``."""
    index = nearest_words(local, words, 1)[..., 0]
    counts = torch.zeros(len(local), len(words)).scatter_add_(1, index, torch.ones(index.shape))
    return counts / local.shape[1]


def pyramid(local: Tensor, words: Tensor) -> Tensor:
    """``[B, n, d]``, n the positions of a square grid, to weighted histograms of all cells, ``[B, 21 k]``."""
    side = round(local.shape[1] ** 0.5)
    index = nearest_words(local, words, 1)[..., 0].view(len(local), side, side)
    row = torch.arange(side)
    found = []
    for cells, weight in zip(CELLS, CELL_WEIGHTS, strict=True):
        cell = row * cells // side
        place = (cell[:, None] * cells + cell[None]) * len(words)
        flat = (index + place).flatten(1)
        counts = torch.zeros(len(local), cells * cells * len(words)).scatter_add_(1, flat, torch.ones(flat.shape))
        found.append(weight * counts / local.shape[1])
    return torch.cat(found, dim=1)


def locality_constrained(local: Tensor, words: Tensor) -> Tensor:
    """``[B, n, d]`` to the largest weight of each word, ``[B, k]``."""
    index = nearest_words(local, words, NEAREST)
    around = words[index] - local.unsqueeze(-2)  # [B, n, 5, d]
    gram = around @ around.mT
    trace = gram.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    gram = gram + (BETA * trace + 1e-9) * torch.eye(NEAREST)
    weights = torch.linalg.solve(gram, torch.ones(*gram.shape[:-1], 1))[..., 0]
    weights = weights / weights.sum(-1, keepdim=True)
    found = torch.zeros(len(local), len(words))
    return found.scatter_reduce_(1, index.flatten(1), weights.flatten(1), "amax")


Encoding = Callable[[Tensor, Tensor], Tensor]


class VisualWords(SvmMethod):
    """Local descriptors, a codebook, an encoding and a linear SVM.

    Args:
        tools: What methods share.
        local: Gives the local descriptors of an image in one vector.
        length: Of one local descriptor.
        encode: From local descriptors and words to a vector for each image.
        words: In the codebook.
        frozen: Numbers that the local descriptor itself consists of.
    """

    def __init__(
        self, tools: Tools, local: Descriptor, length: int, encode: Encoding, words: int, frozen: int = 0
    ) -> None:
        super().__init__(tools)
        self.local, self.length, self.encode, self.count, self.frozen = local, length, encode, words, frozen

    def learn(self, images: Sequence[Item], labels: Sequence[str]) -> None:
        """Learn the codebook."""
        rng = np.random.default_rng(self.tools.seed)
        share = max(1, -(-SAMPLES // len(images)))
        sample = []
        for start in range(0, len(images), BLOCK):
            for own in self._local(images[start : start + BLOCK]):
                sample.append(own[rng.permutation(len(own))[:share]])
        self.words = learn_words(torch.cat(sample), self.count, self.tools.seed)

    def rows(self, images: Sequence[Item]) -> Tensor:
        """Encoded images, the shares of words by their roots."""
        blocks = (self._local(images[start : start + BLOCK]) for start in range(0, len(images), BLOCK))
        codes = torch.cat([self.encode(block, self.words) for block in blocks])
        return F.normalize(codes if self.encode is locality_constrained else codes.sqrt(), dim=1)

    def numbers(self) -> int:
        """Those of codebook and network."""
        return self.frozen + self.words.numel()

    def _local(self, images: Sequence[Item]) -> Tensor:
        return self.tools.describe(self.local, images).reshape(len(images), -1, self.length)


def learn_words(sample: Tensor, count: int, seed: int) -> Tensor:
    """A codebook ``[k, d]`` by k-means; with fewer descriptors than words, a word for each."""
    from sklearn.cluster import MiniBatchKMeans

    count = min(count, len(sample))
    means = MiniBatchKMeans(count, batch_size=4096, max_iter=30, n_init=1, random_state=seed, compute_labels=False)
    means.fit(sample.numpy())
    return torch.from_numpy(means.cluster_centers_.astype(np.float32))


_SIFT = (
    ("sift-bovw", "SIFT BoVW", "BoVW", histogram, WORDS, "Yang and Newsam 2010", "share of each word"),
    ("sift-spm", "SIFT BoVW + SPM", "BoVW+SPM", pyramid, PYRAMID_WORDS, "Lazebnik et al. 2006", "1, 4 and 16 cells"),
    ("sift-llc", "SIFT LLC", "LLC", locality_constrained, WORDS, "Wang et al. 2010", f"{NEAREST} nearest words"),
)
for _name, _title, _published, _encode, _words, _source, _what in _SIFT:

    def _make(tools: Tools, encode: Encoding = _encode, words: int = _words) -> VisualWords:
        return VisualWords(tools, DenseSift(), DenseSift.length, encode, words)

    register(
        About(
            name=_name,
            title=_title,
            family="mid-level",
            source=_source,
            what=f"SIFT of {PATCH} x {PATCH} pixels every {STRIDE}, {_words} words; {_what}; linear SVM",
            published=_published,
            needs=("cv2",),
        ),
        _make,
    )


def _register(backbone: str) -> None:
    title, layer = NETWORKS[backbone]

    def make(tools: Tools) -> VisualWords:
        from mgcap.backbones import find_backbone

        local = Layer(backbone, layer, positions, "positions of unit length", tools.engine, device=tools.torch_device())
        width = find_backbone(backbone).width(layer)
        assert width is not None
        return VisualWords(tools, local, width, histogram, WORDS, local.numbers())

    register(
        About(
            name=f"{backbone}-bovw",
            title=f"{title} + BoVW",
            family="deep, frozen",
            source="Cheng et al. 2017",
            what=f"positions of {layer} as local descriptors, {WORDS} words, linear SVM",
            published=f"{PUBLISHED[backbone]}+BoVW",
            needs=(f"weights:{backbone}",),
        ),
        make,
    )


for _name in NETWORKS:
    _register(_name)
