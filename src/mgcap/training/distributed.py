"""One process or many: devices and precision by Lightning Fabric, gradients exchanged once per step.

Many processes are started by ``torchrun`` (``python -m torch.distributed.run``), which tells each its place in the
environment; Fabric reads it. Every process sees the same list of images and takes its own part.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from mgcap.errors import MgcapError
from mgcap.inference.engines.probe import bf16_works

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.loggers.logger import Logger


def processes() -> int:
    """How many processes work together, as the launcher says."""
    return int(os.environ.get("WORLD_SIZE", "1"))


#: How to get what fine-tuning needs.
INSTALL = "pip install 'mgcap[finetune]'"


def rank() -> int:
    """The number of this process among them; 0 writes the files."""
    return int(os.environ.get("RANK", "0"))


def restarted() -> bool:
    """Whether the launcher started these processes again after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def open_fabric(device: torch.device, precision: str = "32", loggers: Sequence[Logger] = ()) -> Fabric:
    """Join the other processes, if there are any.

    Args:
        device: Its kind counts; among several GPUs of a machine each process gets its own.
        precision: ``32`` or ``bf16``.
        loggers: Take the metrics.
    """
    try:
        from lightning_fabric import Fabric  # takes more than a second to load
    except ImportError as error:
        raise MgcapError(f"fine-tuning needs lightning-fabric: {INSTALL}") from error
    if precision == "bf16" and device.type == "cpu" and not bf16_works():
        raise MgcapError("bf16 does not work on this processor; use precision=32")
    world = processes()
    local = int(os.environ.get("LOCAL_WORLD_SIZE", str(world)))
    if device.type == "cuda" and local > torch.cuda.device_count():
        raise MgcapError(f"{local} processes on this machine, but only {torch.cuda.device_count()} GPUs")
    fabric = Fabric(
        accelerator=device.type,
        devices=local if world > 1 or device.index is None else [device.index],
        num_nodes=max(1, world // local),
        strategy="ddp" if world > 1 else "auto",
        precision="bf16-mixed" if precision == "bf16" else "32-true",
        loggers=list(loggers),
    )
    with together():
        fabric.launch()
    return fabric


@contextmanager
def together() -> Iterator[None]:
    """What processes do together; if one of them dies, the others say so."""
    try:
        yield
    except RuntimeError as error:
        if processes() == 1:
            raise
        reason = re.sub(r"^\[[^]]*\] *", "", str(error).strip().splitlines()[0]).split(". ")[0]
        raise MgcapError(f"another process of this run has died or cannot be reached ({reason})") from error


def own_part(items: Sequence[Any]) -> Sequence[Any]:
    """This process's part of a list that all processes have."""
    return items[rank() :: processes()]


def share(tensors: Sequence[Tensor]) -> None:
    """Give the tensors of the first process to all, in place."""
    if processes() > 1:
        with together(), torch.no_grad():
            for tensor in tensors:
                dist.broadcast(tensor, 0)


def total(values: Tensor) -> Tensor:
    """The sum over all processes."""
    if processes() > 1:
        with together():
            dist.all_reduce(values)
    return values


def wait_for_all() -> None:
    """Wait until every process has come here."""
    if processes() > 1:
        with together():
            dist.barrier()


def gather_rows(own: Tensor, places: Sequence[Sequence[int]], make: Callable[[int, int], Tensor]) -> Tensor | None:
    """Rows of all processes on the first one.

    Args:
        own: ``[n, d]`` on the CPU, this process's rows.
        places: For each process where its rows belong.
        make: Gives an empty ``[count, d]``.

    Returns:
        All rows on the first process, None on the others.
    """
    if processes() == 1:
        return own
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    with together():
        if rank():
            for block in torch.split(own, 64):
                dist.send(block.to(device), 0)
            return None
        rows = make(sum(map(len, places)), own.shape[1])
        rows[list(places[0])] = own
        for other in range(1, processes()):
            for start in range(0, len(places[other]), 64):
                some = list(places[other][start : start + 64])
                block = torch.empty(len(some), own.shape[1], device=device)
                dist.recv(block, other)
                rows[some] = block.cpu()
    return rows


class GradientExchange(nn.Module):
    """Adds up the gradients of all processes by DistributedDataParallel, once per step.

    The gradient of a step comes from many backward passes (see :mod:`mgcap.training.gradient_cache`), each of which
    DistributedDataParallel would want to exchange. So they are made outside of it, and this module goes through it
    instead: its output is the inner product of the parameters with the finished gradient, whose gradient that is.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        super().__init__()
        self.trained = nn.ParameterList(parameters)

    def forward(self, gradients: Sequence[Tensor]) -> Tensor:
        """The inner product."""
        return torch.stack([(p * g).sum() for p, g in zip(self.trained, gradients, strict=True)]).sum()


class Exchange:
    """The gradients of parameters that all processes train; also gives all processes the same parameters to begin with.

    Args:
        fabric: Launched.
        parameters: What is trained.
    """

    def __init__(self, fabric: Fabric, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = list(parameters)
        self._module: Any = None
        if processes() > 1:
            with together():
                self._module = fabric.setup_module(GradientExchange(self.parameters))

    def __call__(self) -> None:
        """Make each gradient the sum over the processes; a process without images has none of its own."""
        if self._module is None:
            return
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad * processes() for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        with together():
            self._module(gradients).backward()  # its mean over the processes is the sum that is wanted
