"""What backbones have in common that can be cut at a layer."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from torch import nn

#: What names begin with that may lie behind the tap: torchvision's, and those of networks of timm and transformers.
_TOPS = (
    "classifier.", "fc.", "features.", "layer", "aux1.", "aux2.", "inception", "Conv2d_", "Mixed_", "AuxLogits.",
    "net.", "network.",
)  # fmt: skip


def _drop_layers_behind_the_tap(
    module: nn.Module, state: dict[str, Any], prefix: str, *_: object, **__: object
) -> None:
    own = {prefix + name for name in module.state_dict()}
    for key in [k for k in state if k.startswith(prefix) and k not in own]:
        if key[len(prefix) :].startswith(_TOPS):
            del state[key]


class Tapped(nn.Module):
    """A network that ends where it is tapped."""

    def __init__(self) -> None:
        super().__init__()
        self.register_load_state_dict_pre_hook(_drop_layers_behind_the_tap)  # type: ignore[no-untyped-call]

    @abstractmethod
    def steps(self) -> list[tuple[str, nn.Module]]:
        """The layers by the names that the registry gives them, each with what follows it up to the next."""


def split_backbone(backbone: nn.Module, first: str) -> tuple[nn.Sequential, nn.Sequential]:
    """A network in two parts that share its parameters: what comes before a layer, and that layer with all behind it.

    Args:
        backbone: As :func:`build_backbone` makes it.
        first: The first layer of the second part (``conv5_1``; ``stage4`` or its second block, ``stage4.2``); ``all``
            puts everything there.

    Raises:
        ValueError: If there is no such layer.
    """
    if first == "all":
        return nn.Sequential(), nn.Sequential(backbone)
    names = [name for name, _ in backbone.steps()] if isinstance(backbone, Tapped) else []
    first = f"{first}.1" if f"{first}.1" in names else first
    if first not in names:
        names = [name.removesuffix(".1") for name in names]
        raise ValueError(f"there is no layer '{first}' to begin with; allowed are {', '.join(['all', *names])}")
    modules = [module for _, module in backbone.steps()]  # type: ignore[operator]
    cut = names.index(first)
    return nn.Sequential(*modules[:cut]), nn.Sequential(*modules[cut:])
