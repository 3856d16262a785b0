"""Gradients of the whole model in memory that does not grow with the rotations.

A plain graph keeps the activations of every view: 27 GB for 12 images x 36 views of VGG-16. Here the local features of
all views are computed without a graph; the rest of the model, from these features to the loss, has one, which gives
the loss's gradient with respect to them; then the backbone runs again, a few views at a time with a graph, and each
takes its part of that gradient back. The backbone runs twice; the gradient is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mgcap import pooling
from mgcap.model import MGCAP

#: The part of the free memory that activations may take.
MEMORY_SHARE = 0.4


def _pieces(model: MGCAP, images: Tensor, chunk: int) -> Iterator[tuple[int, int, int, Tensor]]:
    """Views a few at a time: granularity, first rotation, number of rotations, ``[B * r, 3, h, w]``."""
    angles = model.config.angles
    step = max(1, chunk // len(images))
    for g in range(len(model.config.granularities)):
        for start in range(0, len(angles), step):
            some = angles[start : start + step]
            with torch.no_grad():
                views = model.views_at(images, g, some).flatten(0, 1)
            yield g, start, len(some), views


def _look(model: MGCAP, granularity: int, views: Tensor, chunk: int) -> Iterator[tuple[int, Tensor]]:
    """Local features of views, at most ``chunk`` at a time, with the number of the first; never by an engine."""
    backbone = model.backbones[granularity if len(model.backbones) > 1 else 0]
    for start in range(0, len(views), chunk):
        part = views[start : start + chunk].contiguous(memory_format=torch.channels_last)
        yield start, backbone(part).flatten(2)


def gradient_step(
    model: MGCAP, images: Tensor, loss_of: Callable[[Tensor], Tensor], chunk: int
) -> tuple[Tensor, Tensor]:
    """Add the gradient of a loss to the parameters that require one.

    Args:
        model: Its backbones must treat each view by itself (batch norms in evaluation mode).
        images: ``[B, 3, H, W]`` in [0, 1].
        loss_of: Gives the loss of the logits.
        chunk: Views that go through the backbone together.

    Returns:
        The loss and the logits, without a graph.
    """
    c = model.config
    features: list[Tensor] = []
    with torch.no_grad():
        for g, start, count, views in _pieces(model, images, chunk):
            parts = torch.cat([part for _, part in _look(model, g, views, chunk)])
            parts = parts.reshape(len(images), count, *parts.shape[1:])
            if start == 0:
                features.append(parts.new_empty(len(images), c.rotations, *parts.shape[2:]))
            features[g][:, start : start + count] = parts
    trained = any(p.requires_grad for p in model.backbones.parameters())
    leaves = [f.float().requires_grad_(trained) for f in features]
    pool = pooling.running_max if c.rotation_pooling == "max" else pooling.running_mean
    pooled = torch.stack([pool([model.embed(leaf)]) for leaf in leaves], dim=1)
    logits = model.head(model.descriptor_of(pooled))
    loss = loss_of(logits)
    loss.backward()  # type: ignore[no-untyped-call]
    if trained:
        for g, start, count, views in _pieces(model, images, chunk):
            gradient = leaves[g].grad
            assert gradient is not None
            wanted = gradient[:, start : start + count].flatten(0, 1)
            for first, part in _look(model, g, views, chunk):
                part.backward(wanted[first : first + len(part)].to(part.dtype))  # type: ignore[no-untyped-call]
    return loss.detach(), logits.detach()


def bytes_of_a_view(model: MGCAP) -> int:
    """What autograd keeps of one view in the backbone."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    parameters = sum(p.numel() * p.element_size() for p in model.backbones[0].parameters())
    view = torch.zeros(1, 3, model.config.size, model.config.size, device=model.mean.device)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.backbones[0](view)
    return max(1, int(sum(kept.values()) - parameters))


def choose_chunk(model: MGCAP, free_bytes: int | None = None) -> int:
    """How many views may go through the backbone with a graph at once, from the memory at hand."""
    free = free_memory(model.mean.device) if free_bytes is None else free_bytes
    return max(1, min(256, int(MEMORY_SHARE * free / bytes_of_a_view(model))))


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
