"""Which tensors a model file must hold, by its configuration: known before any of them is read."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from mgcap.config import MGCAPConfig
from mgcap.head import vector_length

#: Prefixes in a model file: of the int8 constants, of the sample of what the model was trained on, of its examples.
INT8, SAMPLE, EXAMPLES = "int8.", "sample.", "examples."
#: The most descriptors of a sample, numbers of each, and bytes of its pictures.
MAX_SAMPLE, MAX_REDUCED, MAX_SHEET = 1 << 17, 1024, 1 << 22
#: The most examples, and numbers of each.
MAX_EXAMPLES, MAX_EXAMPLE = 1 << 22, 1 << 14
#: Quantiles of distances in a sample.
QUANTILES = 1001
#: No weight comes near it.
LARGEST = 1e15
#: More constants than the int8 graph of any network has.
MAX_CONSTANTS = 1 << 24

#: Type, as safetensors calls it, and shape of tensors by name.
Layout = dict[str, tuple[str, tuple[int, ...]]]

_TYPES = {
    torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL",
}  # fmt: skip


def fits(config: MGCAPConfig, stock: bool, found: Layout) -> bool:
    """Whether tensors are exactly those of a model.

    Args:
        config: Of the model.
        stock: Whether its backbone is not in the file.
        found: What the file says it holds.

    Raises:
        ValueError: If there is no such model.
    """
    int8 = {name.removeprefix(INT8): found[name] for name in found if name.startswith(INT8)}
    streams = 1 if config.share_granularities else len(config.granularities)
    if len(int8) > streams or set(int8) != {str(number) for number in range(len(int8))}:
        return False
    if any(kind != "F32" or len(shape) != 1 or not 0 < shape[0] <= MAX_CONSTANTS for kind, shape in int8.values()):
        return False
    sample = {name.removeprefix(SAMPLE): found[name] for name in found if name.startswith(SAMPLE)}
    if sample and not _is_sample(sample):
        return False
    examples = {name.removeprefix(EXAMPLES): found[name] for name in found if name.startswith(EXAMPLES)}
    if examples and not _are_examples(examples):
        return False
    rest = {name: found[name] for name in found if not name.startswith((INT8, SAMPLE, EXAMPLES))}
    return rest == _expected(config, stock, found)


def _is_sample(found: Layout) -> bool:
    """Whether tensors are those of a :class:`mgcap.inference.sample.TrainingSample`."""
    count, length = (*found.get("vectors", ("", ()))[1], 0, 0)[:2]
    sheet = (*found.get("sheet", ("", ()))[1], 0)[0]
    if not (0 < count <= MAX_SAMPLE and 0 < length <= MAX_REDUCED and sheet <= MAX_SHEET):
        return False
    return found == {
        "vectors": ("I8", (count, length)),
        "mean": ("F32", (length,)),
        "targets": ("I32", (count,)),
        "distances": ("F32", (QUANTILES,)),
        "sheet": ("U8", (sheet,)),
        "pictured": ("I32", ()),
    }


def _are_examples(found: Layout) -> bool:
    """Whether tensors are those of :class:`mgcap.inference.examples.Examples`."""
    count, length = (*found.get("vectors", ("", ()))[1], 0, 0)[:2]
    if not (0 < count <= MAX_EXAMPLES and 0 < length <= MAX_EXAMPLE):
        return False
    return found == {"vectors": ("F16", (count, length)), "targets": ("I32", (count,)), "places": ("F64", (count, 2))}


def _expected(config: MGCAPConfig, stock: bool, names: Collection[str]) -> Layout:
    width = config.record.width(str(config.layer))
    layout: Layout = {}
    if not stock:
        state, width = _outline(config, width)
        # granularities that share weights in all but name are stored once
        alone = config.share_granularities or not any(name.startswith("backbones.1.") for name in names)
        for number in range(1 if alone else len(config.granularities)):
            layout |= {f"backbones.{number}.{name}": kind for name, kind in state.items()}
    if width is None:
        raise ValueError(f"there are no stock weights of {config.backbone}")
    channels = width if config.reduction == "none" else config.channels or width
    if config.reduction != "none":
        layout |= {"reduction.basis": ("F32", (channels, width)), "reduction.mean": ("F32", (width,))}
    if config.reduction == "pca":
        layout["reduction.fitted"] = ("BOOL", ())
    length = vector_length(channels + (config.embedding == "gaussian"), config.vector)
    return layout | {
        "head.weight": ("F32", (config.num_classes, length)),
        "head.bias": ("F32", (config.num_classes,)),
    }


def _outline(config: MGCAPConfig, width: int | None) -> tuple[Layout, int]:
    """The tensors of the backbone, and how many channels it gives; it takes no memory."""
    try:
        with torch.device("meta"):
            return _looked_at(config, width)
    except (NotImplementedError, RuntimeError) as error:
        if width is not None:
            raise ValueError(f"{config.backbone} cannot be built") from error
        # some networks of timm look at numbers when they are built
        return _looked_at(config, width)


@torch.no_grad()
def _looked_at(config: MGCAPConfig, width: int | None) -> tuple[Layout, int]:
    network: nn.Module = config.record.cut(config.layer, config.activated)
    layout = {name: (_TYPES.get(t.dtype, "?"), tuple(t.shape)) for name, t in network.state_dict().items()}
    return layout, width or int(network.eval()(torch.zeros(1, 3, config.size, config.size)).shape[1])


def usable(tensors: Mapping[str, Tensor]) -> bool:
    """Whether all numbers are finite and none is absurdly large, and variances are not negative."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point():
            low, high = (float(end) for end in torch.aminmax(tensor))
            if not (low > -LARGEST and high < LARGEST) or (name.endswith("running_var") and low < 0):
                return False
    return True
