r"""Networks that are trained, then an SVM on what they give: fine-tuning, and D-CNN (Cheng et al. 2018).

D-CNN adds to the cross-entropy a term on pairs of images in a batch that keeps those of one class close and the others
apart, :math:`\lambda\,\mathrm{mean}\,[\tau_1 - l_{ij}(\tau_2 - \lVert x_i - x_j\rVert^2)]_+` with :math:`l = 1` for a
pair of one class and :math:`-1` otherwise, on features of unit length.

On a CPU the lower layers stay as they are, and what they give for four rotations of an image is kept; these rotations
replace random augmentation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap.backbones import split_backbone
from mgcap.baselines.invariant import dihedral
from mgcap.baselines.method import About, Tools, register
from mgcap.baselines.networks import INPUT, NETWORKS, PUBLISHED, network, open_frozen, prepared
from mgcap.baselines.svm import SvmMethod
from mgcap.baselines.training import train
from mgcap.data.stream import Item
from mgcap.inference.engines import Engine
from mgcap.inference.engines.probe import fast_bf16
from mgcap.persistence.cache import Recipe
from mgcap.runtime import seeded

#: The first layer that is trained.
TRAIN_FROM = {"alexnet": "conv3", "googlenet": "inception5a", "vgg16": "conv5_1"}
#: Epochs: each rotation of an image is seen twice, with the largest network once.
EPOCHS = {"alexnet": 8, "googlenet": 8, "vgg16": 4}
BATCH = 32
#: Learning rates of the network and of the classifier on top; both fall by a cosine. Chosen with AlexNet on 420 of the
#: training images of one split of UC Merced: 94.3 %, against 91.4 with a fifth and a tenth of them.
RATE, TOP_RATE = 5e-3, 1e-1
#: Rotations of an image that the epochs cycle through.
ROTATIONS = 4
#: D-CNN: weight of the pairs, and the two margins.
PAIRS, TAU_1, TAU_2 = 0.05, 0.5, 0.75


class LowerLayers:
    """What the frozen layers give for one rotation of an image.

    Args:
        backbone: A name of the registry.
        rotation: Number of the rotation or reflection, see :func:`mgcap.baselines.invariant.dihedral`.
        engine: Has the layers.
        weights: ``imagenet`` or ``random``.
        device: Where they compute.
    """

    def __init__(self, backbone: str, rotation: int, engine: Engine, weights: str, device: torch.device) -> None:
        self.backbone, self.rotation, self.engine, self.device = backbone, rotation, engine, device
        self.recipe: Recipe = {
            "kind": "lower layers",
            "backbone": backbone,
            "before": TRAIN_FROM[backbone],
            "turn": rotation,
            "weights": weights,
            "engine": engine.fingerprint,
        }

    @torch.inference_mode()
    def rows(self, images: Tensor) -> Tensor:
        """See :class:`mgcap.baselines.method.Descriptor`."""
        seen = prepared(dihedral(images)[self.rotation].to(self.device), self.backbone)
        return self.engine.features(seen, 0).flatten(1).cpu()


def pair_loss(features: Tensor, targets: Tensor, tau_1: float = TAU_1, tau_2: float = TAU_2) -> Tensor:
    """The metric term of D-CNN over all pairs of a batch; zero for a batch of one."""
    unit = F.normalize(features, dim=1)
    first, second = torch.triu_indices(len(unit), len(unit), 1)
    if not len(first):
        return features.sum() * 0
    distance = (unit[first] - unit[second]).square().sum(1)
    same = torch.where(targets[first] == targets[second], 1.0, -1.0)
    return F.relu(tau_1 - same * (tau_2 - distance)).mean()


class TrainedNetwork(SvmMethod):
    """The upper layers of a network are trained; an SVM on its averaged features decides.

    Args:
        tools: What methods share.
        backbone: A name of :data:`TRAIN_FROM`.
        pairs: Weight of the metric term; 0 is plain fine-tuning.
        weights: ``imagenet``, or ``random`` for tests.
        epochs: Epochs, if not those of :data:`EPOCHS`.
    """

    def __init__(
        self, tools: Tools, backbone: str, pairs: float, weights: str = "imagenet", epochs: int | None = None
    ) -> None:
        super().__init__(tools)
        self.backbone, self.pairs, self.epochs = backbone, pairs, epochs or EPOCHS[backbone]
        self.bf16 = fast_bf16()
        self.device = tools.torch_device()
        whole = network(backbone, NETWORKS[backbone][1], weights).to(self.device)
        self.lower, self.upper = split_backbone(whole, TRAIN_FROM[backbone])
        engine = open_frozen(self.lower, backbone, tools.engine)
        self.rotations = [LowerLayers(backbone, number, engine, weights, self.device) for number in range(ROTATIONS)]
        with torch.inference_mode():
            self.shape = self.lower(torch.zeros(1, 3, INPUT, INPUT, device=self.device)).shape[1:]
        self.size = sum(p.numel() for p in whole.parameters())
        self.losses: list[tuple[float, float]] = []  #: cross-entropy and metric term of each epoch

    def learn(self, images: Sequence[Item], labels: Sequence[str]) -> None:
        """Train the upper layers."""
        with seeded(self.tools.seed):
            self._learn(images, labels)

    def _learn(self, images: Sequence[Item], labels: Sequence[str]) -> None:
        classes, numbers = np.unique(np.asarray(labels), return_inverse=True)
        targets = torch.from_numpy(numbers).to(self.device)
        with torch.inference_mode():
            width = self._features(images[:1], 0).shape[1]
        top = nn.Linear(width, len(classes)).to(self.device)

        def terms(batch: list[int], epoch: int) -> tuple[Tensor, Tensor]:
            features = self._features([images[i] for i in batch], epoch % ROTATIONS)
            return F.cross_entropy(top(features), targets[batch]), pair_loss(features, targets[batch])

        groups = [{"params": list(part.parameters()), "lr": lr} for part, lr in ((self.upper, RATE), (top, TOP_RATE))]
        self.losses = train(groups, len(images), self.epochs, BATCH, terms, self.pairs)

    @torch.inference_mode()
    def rows(self, images: Sequence[Item]) -> Tensor:
        """Averaged features of the trained network."""
        blocks = (images[start : start + BATCH] for start in range(0, len(images), BATCH))
        return F.normalize(torch.cat([self._features(block, 0).cpu() for block in blocks]), dim=1)

    def numbers(self) -> int:
        """Those of the network."""
        return self.size

    def _features(self, images: Sequence[Item], rotation: int) -> Tensor:
        seen = self.tools.describe(self.rotations[rotation], images).reshape(len(images), *self.shape)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
            out: Tensor = self.upper(seen.to(self.device).contiguous(memory_format=torch.channels_last))
        return out.float().mean((-2, -1))


def _register(backbone: str, pairs: float) -> None:
    title, short = NETWORKS[backbone][0], PUBLISHED[backbone]
    first = TRAIN_FROM[backbone]
    register(
        About(
            name=f"dcnn-{backbone}" if pairs else f"{backbone}-tuned-svm",
            title=f"D-CNN, {title}" if pairs else f"{title} + SVM, fine-tuned",
            family="deep, fine-tuned",
            source="Cheng et al. 2018",
            what=f"trained from {first} on for {EPOCHS[backbone]} epochs by cross-entropy"
            + (f" and {pairs:g} times the pairs' term" if pairs else "")
            + "; lower layers frozen; linear SVM on averaged features",
            published=f"D-CNN with {short}" if pairs else f"{short}+SVM",
            needs=(f"weights:{backbone}",),
        ),
        lambda tools: TrainedNetwork(tools, backbone, pairs),
    )


for _name in TRAIN_FROM:
    for _pairs in (0.0, PAIRS):
        _register(_name, _pairs)
