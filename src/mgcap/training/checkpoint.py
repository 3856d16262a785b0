"""The state of a training run in one safetensors file: whole or absent, and without pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mgcap.errors import DataError
from mgcap.persistence.files import atomic_path

#: The name of the file in the folder of a run.
FILE = "checkpoint.safetensors"

_OPTIMISER = "optimiser."


def write_checkpoint(path: Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    """Write tensors and what JSON can hold."""
    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(kept, temporary, {"values": json.dumps(values)})


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_checkpoint` wrote.

    Raises:
        DataError: If there is no such file or it is damaged.
    """
    if not path.exists():
        raise DataError(f"there is nothing to resume: {path} does not exist")
    try:
        with safe_open(path, "pt") as file:
            values: dict[str, Any] = json.loads(file.metadata()["values"])
            return {name: file.get_tensor(name) for name in file.keys()}, values  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged and cannot be resumed; remove it to begin anew") from error


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimiser by name."""
    state = optimiser.state_dict()["state"]
    found = ((f"{_OPTIMISER}{i}.{name}", value) for i, entry in state.items() for name, value in entry.items())
    return {name: torch.as_tensor(value) for name, value in found if value is not None}


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Give an optimiser the state that :func:`optimiser_tensors` took."""
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(_OPTIMISER):
            index, field = name.removeprefix(_OPTIMISER).split(".")
            state.setdefault(int(index), {})[field] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
