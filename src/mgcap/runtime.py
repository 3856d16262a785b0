"""What a computation needs besides the model: engine, device, seed, cache, and where to report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgcap.errors import MgcapError

if TYPE_CHECKING:
    import torch


class Progress:
    """Silent progress; :class:`mgcap.progress_bars.Bars` draws bars on standard error."""

    def __call__(self, title: str, total: int | None) -> AbstractContextManager[Callable[[int], None]]:
        """Open a step of ``total`` parts (None: unknown); the context gives a function that takes parts done."""
        return nullcontext(lambda done: None)

    def __deepcopy__(self, memo: dict[int, object]) -> Progress:
        return self  # a copied estimator reports to the same place

    def say(self, line: str) -> None:
        """Take one line of words."""


silent = Progress()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of torch from a seed within the block; the generator outside is not touched."""
    import torch

    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True)
class Runtime:
    """How to compute.

    Attributes:
        engine: What computes the backbone: ``auto`` (the fastest that works here), ``torch``, ``torch-compile``,
            ``openvino`` (int8) or ``openvino-fp32``.
        device: ``auto``, ``cpu``, ``cuda``, ...
        seed: Of everything random.
        cache: Keep features on disk.
        progress: Where to report.
    """

    engine: str = "auto"
    device: str = "auto"
    seed: int = 0
    cache: bool = True
    progress: Progress = silent

    def torch_device(self) -> torch.device:
        """The device that is meant.

        Raises:
            MgcapError: If it cannot be used here.
        """
        import torch

        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise MgcapError(f"the device '{self.device}' cannot be used here: {str(error).splitlines()[0]}") from error
        return device
