"""What backbones have in common that can be cut at a layer."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import nn

_TORCHVISION_TOPS = ("classifier.", "fc.", "features.", "layer", "aux1.", "aux2.", "inception")


def _drop_layers_behind_the_tap(
    module: nn.Module, state: dict[str, Any], prefix: str, *_: object, **__: object
) -> None:
    own = {prefix + name for name in module.state_dict()}
    for key in [k for k in state if k.startswith(prefix) and k not in own]:
        if key[len(prefix) :].startswith(_TORCHVISION_TOPS):
            del state[key]


class Tapped(nn.Module):
    """A network that ends where it is tapped."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_pre_hook(_drop_layers_behind_the_tap)  # type: ignore[no-untyped-call]

    @abstractmethod
    def steps(self) -> list[tuple[str, nn.Module]]:
        """The layers by the names that the registry gives them, each with what follows it up to the next."""
