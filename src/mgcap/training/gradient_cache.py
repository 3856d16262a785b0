"""Gradients of the whole model in memory that does not grow with the rotations.

A plain graph keeps the activations of every view: 27 GB for 12 images x 36 views of VGG-16. Here the local features of
all views are computed without a graph; the rest of the model, from these features to the loss, has one, which gives
the loss's gradient with respect to them; then the backbone runs again, a few views at a time with a graph, and each
takes its part of that gradient back. The backbone runs twice; the gradient is the same. Where all views fit at once, it
runs once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from mgcap.backbones import split_backbone
from mgcap.inference.forward import answer, see
from mgcap.model import MGCAP

#: The part of the free memory that activations may take, and the most of it on a CPU, where more does not help.
MEMORY_SHARE, CPU_BYTES = 0.4, 2 << 30
#: The most views that go through the backbone together.
MOST_VIEWS = 256
#: Views that go through the frozen layers together.
FROZEN_VIEWS = 16

Autocast = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Trunk:
    """The backbones of a model in two parts: layers that stay as they are, and layers that are trained."""

    frozen: list[nn.Module]
    trained: list[nn.Module]

    @classmethod
    def of(cls, model: MGCAP, train_from: str = "all") -> Trunk:
        """Cut the backbones of a model before a layer."""
        parts = [split_backbone(backbone, train_from) for backbone in model.backbones]
        return cls([frozen for frozen, _ in parts], [trained for _, trained in parts])

    def at(self, granularity: int) -> tuple[nn.Module, nn.Module]:
        """Both parts of the backbone of a granularity."""
        which = granularity if len(self.trained) > 1 else 0
        return self.frozen[which], self.trained[which]


class Views(Protocol):
    """What the trained layers see of some images."""

    def __len__(self) -> int:
        """How many images."""

    def at(self, granularity: int, rotations: Sequence[int]) -> Tensor:
        """Of some rotations by number, ``[B * len(rotations), ...]``, those of an image side by side."""


class SampledViews:
    """Views that are sampled when they are asked for, and seen through the frozen layers.

    Args:
        model: Says granularities and rotations.
        images: Each ``[3, H, W]`` in [0, 1]; they may differ in size.
        trunk: The parts of its backbones.
        field_of_view: Which part of each side to look at; by default the configuration's.
        autocast: Opens the precision to compute in.
    """

    def __init__(
        self,
        model: MGCAP,
        images: Sequence[Tensor],
        trunk: Trunk,
        field_of_view: float | None = None,
        autocast: Autocast = nullcontext,
    ) -> None:
        self.model, self.images, self.trunk = model, images, trunk
        self.field_of_view, self.autocast = field_of_view, autocast

    def __len__(self) -> int:
        return len(self.images)

    @torch.no_grad()
    def at(self, granularity: int, rotations: Sequence[int]) -> Tensor:
        """See :class:`Views`."""
        angles = [self.model.config.angles[r] for r in rotations]
        device = self.model.mean.device
        views = torch.cat(
            [
                self.model.views_at(image.to(device)[None], granularity, angles, self.field_of_view)[0]
                for image in self.images
            ]
        )
        frozen, _ = self.trunk.at(granularity)
        with self.autocast():
            parts = [frozen(v.contiguous(memory_format=torch.channels_last)) for v in torch.split(views, FROZEN_VIEWS)]
        return torch.cat(parts)


class KeptViews:
    """Views that were seen through the frozen layers before.

    Args:
        kept: ``[B, S, R, C, h, w]``, whole or thinned.
        size: Height and width of a whole view; where ``kept`` is smaller, it is every other row and column, the trained
            layers look at no others, and zeros stand in for these.
    """

    def __init__(self, kept: Tensor, size: tuple[int, int]) -> None:
        self.kept, self.size = kept, size

    def __len__(self) -> int:
        return len(self.kept)

    def at(self, granularity: int, rotations: Sequence[int]) -> Tensor:
        """See :class:`Views`."""
        thin = self.kept[:, granularity, list(rotations)].flatten(0, 1)
        if thin.shape[-2:] == self.size:
            return thin
        whole = thin.new_zeros(*thin.shape[:2], *self.size)
        whole[..., ::2, ::2] = thin
        return whole


@dataclass(frozen=True)
class Choice:
    """The views that are looked at: granularities and rotations by number."""

    granularities: Sequence[int]
    rotations: Sequence[int]

    @classmethod
    def everything(cls, model: MGCAP) -> Choice:
        """All views of a model."""
        return cls(range(len(model.config.granularities)), range(model.config.rotations))

    @property
    def count(self) -> int:
        """How many views of each image."""
        return len(self.granularities) * len(self.rotations)

    def pieces(self, views: Views, chunk: int) -> Iterator[tuple[int, int, slice]]:
        """Some rotations at a time: place in the list of granularities, granularity, places in that of rotations."""
        step = max(1, chunk // len(views))
        for place, g in enumerate(self.granularities):
            for first in range(0, len(self.rotations), step):
                yield place, g, slice(first, first + step)


def _look(network: nn.Module, inputs: Tensor, chunk: int, autocast: Autocast) -> Iterator[tuple[int, Tensor]]:
    """Local features, at most ``chunk`` views at a time, with the number of the first."""
    for first in range(0, len(inputs), chunk):
        part = inputs[first : first + chunk].contiguous(memory_format=torch.channels_last)
        with autocast():
            features = network(part)
        yield first, features.flatten(2)


def _features(views: Views, trunk: Trunk, chunk: int, autocast: Autocast, choice: Choice) -> list[Tensor]:
    """For each granularity ``[B, R, C, N]`` in float32; the engine of the model is never asked."""
    found: list[list[Tensor]] = [[] for _ in choice.granularities]
    for place, g, some in choice.pieces(views, chunk):
        inputs = views.at(g, choice.rotations[some])
        features = torch.cat([part for _, part in _look(trunk.at(g)[1], inputs, chunk, autocast)]).float()
        found[place].append(features.reshape(len(views), -1, *features.shape[1:]))
    return [torch.cat(parts, dim=1) for parts in found]


def _logits(model: MGCAP, features: Sequence[Tensor]) -> Tensor:
    return answer(model, see(model, [[own] for own in features])).logits


@torch.no_grad()
def logits_of(model: MGCAP, views: Views, trunk: Trunk, chunk: int, autocast: Autocast = nullcontext) -> Tensor:
    """Logits ``[B, K]`` by the same way as in training."""
    return _logits(model, _features(views, trunk, chunk, autocast, Choice.everything(model)))


def gradient_step(
    model: MGCAP,
    views: Views,
    trunk: Trunk,
    loss_of: Callable[[Tensor], Tensor],
    chunk: int,
    autocast: Autocast = nullcontext,
    choice: Choice | None = None,
) -> tuple[Tensor, Tensor]:
    """Add the gradient of a loss to the parameters that require one.

    Args:
        model: Its backbones must treat each view by itself (batch norms in evaluation mode).
        views: What the trained layers see.
        trunk: Which layers these are.
        loss_of: Gives the loss of the logits.
        chunk: Views that go through the backbone together.
        autocast: Opens the precision for the backbone.
        choice: The views that this step looks at; all by default.

    Returns:
        The loss and the logits, without a graph.
    """
    trained = any(p.requires_grad for part in trunk.trained for p in part.parameters())
    choice = choice or Choice.everything(model)
    at_once = trained and chunk >= len(views) * choice.count
    with torch.set_grad_enabled(at_once):
        features = _features(views, trunk, chunk, autocast, choice)
    leaves = features if at_once else [f.requires_grad_(trained) for f in features]
    logits = _logits(model, leaves)
    loss = loss_of(logits)
    loss.backward()  # type: ignore[no-untyped-call]
    if trained and not at_once:
        for place, g, some in choice.pieces(views, chunk):
            gradient = leaves[place].grad
            assert gradient is not None
            wanted = gradient[:, some].flatten(0, 1)
            for start, part in _look(trunk.at(g)[1], views.at(g, choice.rotations[some]), chunk, autocast):
                part.backward(wanted[start : start + len(part)].to(part.dtype))  # type: ignore[no-untyped-call]
    return loss.detach(), logits.detach()


def bytes_of_a_view(model: MGCAP, trunk: Trunk) -> int:
    """What autograd keeps of one view in the trained layers."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    frozen, trained = trunk.at(0)
    parameters = sum(p.numel() * p.element_size() for p in trained.parameters())
    view = torch.zeros(1, 3, model.config.size, model.config.size, device=model.mean.device)
    with torch.no_grad():
        seen = frozen(view)
    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trained(seen)
    return max(1, int(sum(kept.values()) - parameters))


def choose_chunk(model: MGCAP, trunk: Trunk, free_bytes: int | None = None) -> int:
    """How many views may go through the trained layers with a graph at once, from the memory at hand."""
    device = model.mean.device
    share = MEMORY_SHARE * (free_memory(device) if free_bytes is None else free_bytes)
    share = min(share, CPU_BYTES) if device.type == "cpu" else share
    return max(1, min(MOST_VIEWS, int(share / bytes_of_a_view(model, trunk))))


def free_memory(device: torch.device) -> int:
    """Bytes that may be taken on a device."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        with open("/proc/meminfo") as file:  # noqa: PTH123 (not a file on a disk)
            sizes = dict(line.split(":") for line in file)
        return 1024 * int(sizes["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        return 4 << 30
