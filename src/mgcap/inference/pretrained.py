"""Models with weights by their names, as :meth:`mgcap.MGCAP.from_pretrained` gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgcap.config import PRESETS, MGCAPConfig
from mgcap.errors import MgcapError, did_you_mean
from mgcap.inference.preparation import build_model
from mgcap.inference.universal import universal_for
from mgcap.model import MGCAP
from mgcap.persistence.bundle import read_bundle
from mgcap.persistence.shipped import find_model, shipped_models
from mgcap.persistence.storage import restore_model
from mgcap.runtime import Runtime, silent


def pretrained_model(
    name: str | Path, num_classes: int | None, device: str, weights: str | Path, values: dict[str, Any]
) -> MGCAP:
    """See :meth:`mgcap.MGCAP.from_pretrained`."""
    where = Runtime(device=device).torch_device()
    values = values if num_classes is None else {**values, "num_classes": num_classes}
    if str(name) in PRESETS:
        model = _preset(str(name), weights, values)
    elif find_model(name).is_file():
        model = _saved(name, values)
    else:
        known = [*PRESETS, *shipped_models()]
        hint = did_you_mean(name, known)
        raise MgcapError(f"'{name}' is neither a model ({', '.join(known)}) nor the file of one{hint}")
    return model.requires_grad_(True).to(where)


def _preset(name: str, weights: str | Path, values: dict[str, Any]) -> MGCAP:
    if "num_classes" not in values:
        raise MgcapError(f"num_classes: say how many classes the head of '{name}' shall have")
    model, _ = build_model(MGCAPConfig(**{"preset": name, **values}), weights, Runtime(device="cpu"))
    model.head.reset_parameters()  # by torch's own random numbers, so that torch.manual_seed counts
    universal = universal_for(model)
    if universal is not None:
        universal.install(model)
    return model


def _saved(name: str | Path, values: dict[str, Any]) -> MGCAP:
    found = read_bundle(find_model(name))
    saved, _ = restore_model(found, name, silent)
    config = found.config.replace(**values)
    if config == found.config:
        return saved
    model = MGCAP(config).eval()
    state = saved.state_dict()
    if config.num_classes != found.config.num_classes:
        state |= {f"head.{part}": tensor for part, tensor in model.head.state_dict().items()}
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        changed = ", ".join(value for value in values if value != "num_classes")
        raise MgcapError(f"the weights of {name} do not fit a model with other values of {changed}") from error
    return model
