"""Networks of the transformers library, from the hub or from a folder, by ``hf:NAME``.

Of a model its configuration (data) and its safetensors are read; no code of a model is ever run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from mgcap.backbones.architecture import PREFIX, Architecture, parse_architecture
from mgcap.backbones.hub import configuration, library, read_architecture
from mgcap.backbones.readers import one_line
from mgcap.backbones.record import Backbone
from mgcap.backbones.tapped import Tapped
from mgcap.errors import WeightsError


def _bare_network(architecture: Architecture) -> Any:
    """The network of transformers with random weights, without what no local feature depends on."""
    family = architecture.family
    try:
        network = getattr(library(), family.network)(configuration(architecture.kind, architecture.values))
    except Exception as error:  # whatever transformers thinks of the values
        raise ValueError(f"backbone: transformers cannot build '{architecture.name}': {one_line(error)}") from error
    for module in network.modules():
        if hasattr(type(module), "loss_function"):
            module._loss_function = None  # or whoever lists the attributes is warned that there is none
    for name in ("pooler", "post_layernorm"):
        if getattr(network, name, None) is not None:
            setattr(network, name, nn.Identity())
    embeddings: Any = getattr(network, "embeddings", None)
    if getattr(embeddings, "mask_token", None) is not None:
        embeddings.mask_token = None
    return network


class _Network(Tapped):
    """A network of transformers up to a layer, under the name ``network``.

    Attributes:
        attends: Whether it has attention, of which int8 must know.
    """

    def __init__(self, layer: str, activated: bool, *, architecture: Architecture) -> None:
        super().__init__()
        if not activated:
            raise ValueError("activated: networks of transformers give activated features only; use activated=True")
        self.architecture = architecture
        self.attends = architecture.family.kind != "maps"
        self.network = _bare_network(architecture)
        if layer != "last":
            blocks = self.network.get_submodule(architecture.family.blocks)
            del blocks[int(layer.removeprefix("block").removeprefix("stage")) :]
        if architecture.family.norm and (layer != "last" or architecture.family.kind == "maps"):
            setattr(self.network, architecture.family.norm, nn.Identity())

    def _blocks(self) -> list[nn.Module]:
        return list(self.network.get_submodule(self.architecture.family.blocks))

    def extra_repr(self) -> str:
        """What the network is: parameters alone do not say how many heads share them."""
        return self.architecture.text()

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        for _, module in self.steps():
            x = module(x)
        return x


class Maps(_Network):
    """Networks whose stages give feature maps: ConvNeXt, ResNet."""

    def steps(self) -> list[tuple[str, nn.Module]]:
        """The stages, the first with the stem."""
        stem = next((m for n, m in self.network.named_children() if n in ("embeddings", "embedder")), nn.Identity())
        first, *others = self._blocks()
        return [(f"stage{i}", m) for i, m in enumerate([nn.Sequential(stem, first), *others], start=1)]


class Windows(_Network):
    """Swin: windows of tokens; a stage is tapped before it is merged with its neighbours."""

    def __init__(self, layer: str, activated: bool, *, architecture: Architecture) -> None:
        super().__init__(layer, activated, architecture=architecture)
        self._blocks()[-1].downsample = None  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``[B, 3, H, W]`` to features ``[B, C, H', W']``."""
        tokens, (height, width) = self.network.embeddings(x, interpolate_pos_encoding=True)
        for stage in self._blocks():
            tokens = stage(tokens, (height, width))[0]
            if stage.downsample is not None:
                height, width = (height + 1) // 2, (width + 1) // 2
        found: Tensor = self.network.layernorm(tokens)
        return found.transpose(1, 2).reshape(-1, found.shape[2], height, width)

    def steps(self) -> list[tuple[str, nn.Module]]:
        """None: its stages need to know the size of the grid."""
        return []


class _Embed(nn.Module):
    """Images to tokens ``[B, C, T, 1]``, which have four dimensions as maps have."""

    def __init__(self, network: Any, kind: str) -> None:
        super().__init__()
        self.embeddings = network.embeddings
        self.norm = getattr(network, "pre_layrnorm", nn.Identity())
        self.resized = {"interpolate_pos_encoding": True} if kind in ("vit", "deit", "clip_vision_model") else {}

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        tokens: Tensor = self.norm(self.embeddings(x, **self.resized))
        return tokens.transpose(1, 2).unsqueeze(3)


class _Tokens(nn.Module):
    """A block of a transformer, from ``[B, C, T, 1]`` to the same."""

    def __init__(self, block: nn.Module, rotary: Any, architecture: Architecture) -> None:
        super().__init__()
        self.block, self.rotary = block, rotary
        self.prefix, self.patch = architecture.prefix, architecture.patch

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        tokens = x.squeeze(3).transpose(1, 2)
        positions = {"attention_mask": None}
        if self.rotary is not None:  # they depend on the size of the grid, which is square
            side = math.isqrt(int(tokens.shape[1]) - self.prefix) * self.patch
            positions = {"position_embeddings": self.rotary(tokens.new_empty(1, 3, side, side))}
        out: Tensor = self.block(tokens, **positions)
        return out.transpose(1, 2).unsqueeze(3)


class _Patches(nn.Module):
    """The last normalisation, and the tokens of patches as a map."""

    def __init__(self, norm: nn.Module, prefix: int) -> None:
        super().__init__()
        self.norm, self.prefix = norm, prefix

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        tokens: Tensor = self.norm(x.squeeze(3).transpose(1, 2))[:, self.prefix :]
        side = math.isqrt(int(tokens.shape[1]))
        return tokens.transpose(1, 2).reshape(-1, tokens.shape[2], side, side)


class VisionTransformer(_Network):
    """Vision transformers: the tokens of the patches are the local features; the class and registers are left out."""

    def forward(self, x: Tensor) -> Tensor:
        """Map square images ``[B, 3, H, H]`` to features ``[B, C, H', H']``."""
        if int(x.shape[2]) != int(x.shape[3]):
            raise ValueError(f"{self.architecture.name} takes square images, not {list(x.shape[2:])}")
        return super().forward(x)

    def steps(self) -> list[tuple[str, nn.Module]]:
        """The patches' embedding, the blocks, and the map of the patches with the last block."""
        architecture, rotary = self.architecture, getattr(self.network, "rope_embeddings", None)
        norm = self.network.get_submodule(architecture.family.norm) if architecture.family.norm else nn.Identity()
        blocks: list[nn.Module] = [_Tokens(block, rotary, architecture) for block in self._blocks()]
        blocks[-1] = nn.Sequential(blocks[-1], _Patches(norm, architecture.prefix))
        names = [f"block{i}" for i in range(1, len(blocks) + 1)]
        return [("patches", _Embed(self.network, architecture.kind)), *zip(names, blocks, strict=True)]


_NETWORKS: dict[str, Callable[..., nn.Module]] = {"tokens": VisionTransformer, "maps": Maps, "windows": Windows}


@contextmanager
def _silent(library: Any) -> Iterator[None]:
    """No reports and bars of transformers, which go to standard error."""
    talk = library.utils.logging
    verbosity, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        yield
    finally:
        talk.set_verbosity(verbosity)
        if bars:
            talk.enable_progress_bar()


def _fetch(architecture: Architecture) -> dict[str, Tensor]:
    """The weights of the whole network, as float32, from safetensors."""
    transformers = library()
    place = architecture.name.removeprefix(PREFIX)
    folder = Path(place).expanduser()
    try:
        with _silent(transformers):
            network, report = getattr(transformers, architecture.family.network).from_pretrained(
                str(folder) if folder.is_dir() else place,
                config=configuration(architecture.kind, architecture.values),
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=folder.is_dir(),
                dtype="float32",
                output_loading_info=True,
            )
    except Exception as error:  # the hub, the library and the files have errors of all kinds
        raise WeightsError(f"the weights of '{architecture.name}' cannot be had: {one_line(error)}") from error
    missing = set(report["missing_keys"])  # transformers would make them up
    return {f"network.{key}": t for key, t in network.state_dict().items() if key not in missing}


def hf_record(name: str, architecture: str | None = None) -> Backbone:
    """The record of ``hf:NAME``.

    Args:
        name: Of a model on the hub, or a folder.
        architecture: What it is, as text; without it the folder or the hub is asked.
    """
    found = read_architecture(name) if architecture is None else parse_architecture(architecture)
    return Backbone(
        name,
        f"{found.family.network} of transformers",
        partial(_NETWORKS[found.family.kind], architecture=found),
        found.layers,
        found.default_layer,
        mean=found.mean,
        std=found.std,
        smallest=found.smallest,
        multiple=found.patch,
        fetch=partial(_fetch, found),
    )
