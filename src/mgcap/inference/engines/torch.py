"""The torch engine: batch norms folded into the convolutions, channels last, memory kept; autocast on CUDA."""

from __future__ import annotations

import copy
import ctypes
import sys
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from mgcap.errors import MgcapError

#: Views that go through the network together.
VIEWS_AT_ONCE = 16

#: For each parameter and buffer where its numbers lie and how often they were changed.
Stamp = list[tuple[int, int]]


def weight_stamp(networks: Iterable[nn.Module]) -> Stamp:
    """A stamp of weights that changes when they are changed, loaded or moved."""
    return [(t.data_ptr(), t._version) for network in networks for t in (*network.parameters(), *network.buffers())]


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_freed_memory() -> None:
    """Let glibc keep large blocks that were freed, instead of giving them back and asking again for each layer.

    A forward pass frees and takes hundreds of megabytes; the page faults are a third of its time on a CPU.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
            libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def fold_batch_norms(network: nn.Module) -> nn.Module:
    """A copy of a network in evaluation mode with each batch norm folded into the convolution before it."""
    network = copy.deepcopy(network).eval()
    for module in list(network.modules()):
        before: tuple[str, nn.Module] | None = None
        for name, child in list(module.named_children()):
            if isinstance(child, nn.BatchNorm2d) and before and isinstance(before[1], nn.Conv2d):
                setattr(module, before[0], fuse_conv_bn_eval(before[1], child))
                setattr(module, name, nn.Identity())
            before = (name, child)
    return network


class TorchEngine:
    """Runs the networks where their parameters are.

    Args:
        backbones: One network for all granularities, or one for each.
        compiled: Let ``torch.compile`` fuse what it can. It takes a minute and a C++ compiler; worth it on a GPU.
    """

    def __init__(self, backbones: Sequence[nn.Module], compiled: bool = False) -> None:
        keep_freed_memory()
        self.name = "torch-compile" if compiled else "torch"
        self.made_from = weight_stamp(backbones)
        device = next((p.device.type for b in backbones for p in b.parameters()), "cpu")
        self.overlaps = device != "cpu"
        self.fingerprint = f"{self.name} {torch.__version__} {device}"
        self.networks = [
            fold_batch_norms(b).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            for b in backbones
        ]
        if compiled:
            self.networks = [torch.compile(network, dynamic=True) for network in self.networks]

    def resized(self, size: int) -> TorchEngine:
        """The engine for square views of another side: this one."""
        return self

    @torch.inference_mode()
    def features(self, views: Tensor, granularity: int) -> Tensor:
        """``[n, 3, h, w] -> [n, C, N]`` in float32."""
        network = self.networks[granularity if len(self.networks) > 1 else 0]
        kind = torch.bfloat16 if views.is_cuda and torch.cuda.is_bf16_supported() else torch.float16
        with torch.autocast(views.device.type, kind, enabled=views.is_cuda):
            try:
                parts = [
                    network(p.contiguous(memory_format=torch.channels_last)) for p in torch.split(views, VIEWS_AT_ONCE)
                ]
            except Exception as error:
                if self.name != "torch-compile":
                    raise
                reason = str(error).strip().splitlines()[0]
                raise MgcapError(f"torch.compile does not work here ({reason}); use `engine=torch`") from error
        return torch.cat(parts).flatten(2).float()
