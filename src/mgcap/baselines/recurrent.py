r"""RTN: recurrent spatial transformers over three scales (Chen et al. 2018).

The image, then what a transformer cuts out of it, then what the next one cuts out of that, go through the same network.
At each scale bilinear pooling of the reduced features gives both the class scores and the affine map to the next scale.
The loss is the cross-entropy of every scale and a ranking of neighbours: a finer scale should be more confident of the
right class, :math:`[p_s(y) - p_{s+1}(y) + m]_+`. The answer is the mean of the three.

The paper does not say how training begins. Here, as is usual with bilinear pooling, the channels are reduced to the
principal ones of the pretrained network at first, the classifier of each scale is solved on its features, and then all
is trained together. The transformers move slowly: at fifty times their rate they threw a network off within twenty
steps. The paper trains VGG-16 on GPUs; on a CPU AlexNet is the network to take.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap.baselines.invariant import dihedral
from mgcap.baselines.method import About, Tools, register, standard
from mgcap.baselines.networks import NETWORKS, network, prepared
from mgcap.baselines.training import train
from mgcap.data.stream import Item
from mgcap.head import signed_root
from mgcap.inference.engines.probe import fast_bf16
from mgcap.reduction import FeatureMoments
from mgcap.runtime import seeded
from mgcap.training.softmax import solve_head
from mgcap.typing import Array

SCALES = 3
#: Channels that bilinear pooling sees.
CHANNELS = 64
MARGIN = 0.05
#: The first zoom of a transformer.
ZOOM = 0.8
EPOCHS, BATCH = 4, 16
#: Learning rates of the pretrained network and the reduction, of the classifiers, and of the transformers.
RATE, CLASSIFY_RATE, TRANSFORMER_RATE = 1e-3, 1e-1, 1e-4
#: Regularisation of the classifiers that training begins with, see :mod:`mgcap.training.softmax`.
FIRST_STRENGTH = 1e-4
#: Images whose positions give the principal channels.
REDUCED_FROM = 200


class TransformerNetwork(nn.Module):
    """The network with its classifiers and transformers.

    Args:
        backbone: From images to maps ``[B, C, h, w]``.
        width: Channels C.
        classes: How many.
        bf16: Compute the backbone in bf16.
    """

    def __init__(self, backbone: nn.Module, width: int, classes: int, bf16: bool = False) -> None:
        super().__init__()
        self.backbone, self.bf16 = backbone, bf16
        self.reduce = nn.Conv2d(width, CHANNELS, 1, bias=False)
        self.classify = nn.ModuleList([nn.Linear(CHANNELS**2, classes) for _ in range(SCALES)])
        self.locate = nn.ModuleList([nn.Linear(CHANNELS**2, 6) for _ in range(SCALES - 1)])
        for module in self.locate:
            assert isinstance(module, nn.Linear)
            nn.init.zeros_(module.weight)
            with torch.no_grad():
                module.bias.copy_(torch.tensor([ZOOM, 0, 0, 0, ZOOM, 0]))

    def forward(self, images: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Class scores ``[B, K]`` of each scale, and the affine maps ``[B, 2, 3]`` between them."""
        pools, maps = self.pools(images)
        return [classify(pooled) for classify, pooled in zip(self.classify, pools, strict=True)], maps

    def pools(self, images: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Pooled rows ``[B, CHANNELS^2]`` of each scale, and the affine maps between them."""
        pools, maps = [self.pool(images)], []
        for locate in self.locate:
            maps.append(locate(pools[-1]).view(-1, 2, 3))
            grid = F.affine_grid(maps[-1], list(images.shape), align_corners=False)
            images = F.grid_sample(images, grid, align_corners=False)
            pools.append(self.pool(images))
        return pools, maps

    def pool(self, images: Tensor) -> Tensor:
        """Bilinear pooling: signed root and unit length."""
        with torch.autocast(images.device.type, torch.bfloat16, enabled=self.bf16):
            local = self.reduce(self.backbone(images)).flatten(2)
        local = local.float()
        return F.normalize(signed_root((local @ local.mT / local.shape[-1]).flatten(1)), dim=1)


def ranking_loss(logits: Sequence[Tensor], targets: Tensor, margin: float = MARGIN) -> Tensor:
    """By how much finer scales fail to be more confident than coarser ones."""
    own = [scores.softmax(1).gather(1, targets[:, None])[:, 0] for scores in logits]
    gaps = [F.relu(coarse - fine + margin).mean() for coarse, fine in itertools.pairwise(own)]
    return torch.stack(gaps).sum()


class Rtn:
    """See the module.

    Args:
        tools: What methods share.
        backbone: A name of the registry.
        weights: ``imagenet``, or ``random`` for tests.
        epochs: How many.
    """

    def __init__(self, tools: Tools, backbone: str, weights: str = "imagenet", epochs: int = EPOCHS) -> None:
        self.tools, self.backbone, self.weights, self.epochs = tools, backbone, weights, epochs
        self.losses: list[tuple[float, float]] = []  #: cross-entropy and ranking of each epoch

    def fit(self, images: Sequence[Item], labels: Sequence[str]) -> Rtn:
        """Train everything."""
        with seeded(self.tools.seed):
            return self._fit(images, labels)

    def _fit(self, images: Sequence[Item], labels: Sequence[str]) -> Rtn:
        self.classes, numbers = np.unique(np.asarray(labels), return_inverse=True)
        self.device = self.tools.torch_device()
        targets = torch.from_numpy(numbers).to(self.device)
        trunk = network(self.backbone, NETWORKS[self.backbone][1], self.weights)
        with torch.inference_mode():
            width = trunk(torch.zeros(1, 3, 224, 224)).shape[1]
        torch.manual_seed(self.tools.seed)
        net = TransformerNetwork(trunk, width, len(self.classes), bf16=fast_bf16())
        self.net = net.to(self.device, memory_format=torch.channels_last)  # type: ignore[call-overload]

        self._begin(images, targets)

        def terms(batch: list[int], epoch: int) -> tuple[Tensor, Tensor]:
            seen = dihedral(torch.stack([standard(images[i]) for i in batch]))[int(torch.randint(8, ()))]
            logits, _ = self.net(prepared(seen.to(self.device), self.backbone))
            entropies = [F.cross_entropy(scores, targets[batch]) for scores in logits]
            return torch.stack(entropies).sum(), ranking_loss(logits, targets[batch])

        self.losses = train(self._groups(), len(images), self.epochs, BATCH, terms)
        self.net.eval()
        return self

    @torch.no_grad()
    def _begin(self, images: Sequence[Item], targets: Tensor) -> None:
        """The principal channels, and classifiers of the scales as they are before training."""
        net = self.net
        some = torch.randperm(len(images))[:REDUCED_FROM].tolist()
        moments = FeatureMoments(net.reduce.in_channels)
        for seen in self._seen(images, some):
            moments.add(net.backbone(seen).flatten(2).cpu())
        _, axes = moments.principal_axes(CHANNELS)
        net.reduce.weight.copy_(axes[..., None, None])
        rows = [torch.stack(net.pools(seen)[0]).cpu() for seen in self._seen(images, range(len(images)))]
        for module, own in zip(net.classify, torch.cat(rows, dim=1), strict=True):
            head = solve_head(own, targets.tolist(), len(self.classes), [FIRST_STRENGTH])
            module.load_state_dict({"weight": head.weight, "bias": head.bias})

    def _seen(self, images: Sequence[Item], which: Sequence[int]) -> Iterator[Tensor]:
        """Some of the images as the network wants them, in batches."""
        for start in range(0, len(which), BATCH):
            block = torch.stack([standard(images[i]) for i in which[start : start + BATCH]])
            yield prepared(block.to(self.device), self.backbone)

    def _groups(self) -> list[dict[str, Any]]:
        net = self.net
        return [
            {"params": [*net.backbone.parameters(), *net.reduce.parameters()], "lr": RATE},
            {"params": list(net.classify.parameters()), "lr": CLASSIFY_RATE},
            {"params": list(net.locate.parameters()), "lr": TRANSFORMER_RATE, "weight_decay": 0.0},
        ]

    @torch.inference_mode()
    def predict(self, images: Sequence[Item]) -> Array:
        """The label of each image."""
        found = []
        for seen in self._seen(images, range(len(images))):
            logits, _ = self.net(seen)
            found.append(torch.stack([scores.softmax(1) for scores in logits]).mean(0).argmax(1).cpu())
        labels: Array = self.classes[torch.cat(found).numpy()]
        return labels

    def parameters(self) -> int:
        """Numbers of the network."""
        return sum(p.numel() for p in self.net.parameters())


def _register(backbone: str) -> None:
    title, _ = NETWORKS[backbone]
    register(
        About(
            name=f"rtn-{backbone}",
            title=f"RTN, {title}",
            family="deep, fine-tuned",
            source="Chen et al. 2018",
            what=f"{SCALES} scales, bilinear pooling of {CHANNELS} channels, ranking loss; {EPOCHS} epochs",
            published="RTN with VGG-D" if title == "VGG-16" else None,
            needs=(f"weights:{backbone}",),
        ),
        lambda tools: Rtn(tools, backbone),
    )


for _name in ("alexnet", "vgg16"):
    _register(_name)
