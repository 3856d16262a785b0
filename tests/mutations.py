"""Small model files, and seeded ways to alter them whose digest is right again, as a stranger would do it."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

Tensors = dict[str, torch.Tensor]

DEEP: Any = []
for _ in range(40):
    DEEP = [DEEP]

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 7, 360, 1024, 4096, 100_000, 2**31, 2**63, 10**25, -0.5, 0.5, 1e-300, 1e300, 3.5,
    float("nan"), float("inf"), float("-inf"), "", "4", "x", "a\nb", "\ud800", "x" * 100_000, "../../etc/passwd",
    "timm:resnet18", "timm:hf-hub:someone/model", "timm:local-dir:/tmp", "stage1", "conv5", "vgg16", "alexnet", "full",
    "paper", "learnt", "none", "log", "covariance", [], [1.0], [0.5] * 17, [[]], ["a", "a"], {}, {"a": 1}, DEEP,
)  # fmt: skip


def read(path: Path) -> tuple[dict[str, Any], Tensors]:
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["mgcap"]), tensors


def digest(header: dict[str, Any], tensors: Tensors) -> str:
    """Worked out without the package."""
    inner = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        inner.update(f"{name} {tensor.dtype} {list(tensor.shape)};".encode())
        inner.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256((text + inner.hexdigest()).encode()).hexdigest()


def write(path: Path, header: dict[str, Any], tensors: Tensors) -> None:
    header = {name: value for name, value in header.items() if name != "digest"}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, path, {"mgcap": json.dumps(header | {"digest": digest(header, tensors)})})


def rewrite(path: Path, change: Callable[[dict[str, Any], Tensors], object]) -> None:
    header, tensors = read(path)
    change(header, tensors)
    write(path, header, tensors)


def _places(value: Any, own: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every list or object with a key of it."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        own.append((value, key))
        if isinstance(inner, dict | list):
            _places(inner, own)
    return own


def _alter_header(header: dict[str, Any], rng: random.Random) -> None:
    places = _places(header, [])
    if rng.random() < 0.7:  # the many numbers of the metrics would get all the attention
        places = [(own, key) for own, key in places if not (isinstance(own, list) and len(own) > 20)]
    own, key = rng.choice(places)
    way = rng.random()
    if way < 0.6:
        own[key] = rng.choice(VALUES)
    elif way < 0.75:
        del own[key]
    elif way < 0.85:
        other, place = rng.choice(places)
        own[key] = json.loads(json.dumps(other[place]))
    elif isinstance(own, dict):
        own[rng.choice(("extra", "", "x" * 1000, "a\n"))] = own.pop(key) if way < 0.93 else rng.choice(VALUES)
    else:
        own.insert(key, own[key])


def _alter_tensors(tensors: Tensors, rng: random.Random) -> None:
    name = rng.choice(sorted(tensors))
    tensor = tensors[name]
    ways: list[Callable[[], object]] = [
        lambda: tensors.pop(name),
        lambda: tensors.update({rng.choice(("extra", "int8.0", "int8.1", "int8.x", "int8.", "")): torch.rand(9)}),
        lambda: tensors.update({f"{name}x": tensors.pop(name)}),
        lambda: tensors.update({name: tensor.double()}),
        lambda: tensors.update({name: tensor.half()}),
        lambda: tensors.update({name: tensor.to(torch.int32)}),
        lambda: tensors.update({name: tensor.flatten()[:-1].clone()}),
        lambda: tensors.update({name: tensor.unsqueeze(0).clone()}),
        lambda: tensors.update({name: tensor.flatten()[:0].clone()}),
        lambda: tensors.update({name: torch.full_like(tensor, float("nan")) if tensor.is_floating_point() else tensor}),
        lambda: tensors.update({name: torch.full_like(tensor, 3e38) if tensor.is_floating_point() else tensor}),
        lambda: tensors.update({name: torch.full_like(tensor, 1e14) if tensor.is_floating_point() else tensor}),
        lambda: tensors.update({name: -tensor if tensor.is_floating_point() else ~tensor}),
        lambda: tensors.update({name: torch.zeros_like(tensor)}),
    ]
    rng.choice(ways)()


def mutate(whole: Path, target: Path, seed: int) -> None:
    """Write an altered copy of a model file: its header, its tensors, its bytes or its length."""
    rng = random.Random(seed)
    data = bytearray(whole.read_bytes())
    way = rng.random()
    if way < 0.65:
        header, tensors = read(whole)
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            _alter_header(header, rng)
        write(target, header, tensors)
    elif way < 0.85:
        header, tensors = read(whole)
        _alter_tensors(tensors, rng)
        write(target, header, tensors)
    elif way < 0.95:
        start = 8 + int.from_bytes(data[:8], "little")
        for _ in range(rng.choice((1, 1, 5))):
            data[rng.randrange(rng.choice((8, start, len(data))))] ^= 1 << rng.randrange(8)
        target.write_bytes(data)
    else:
        target.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.8 else data + b"x" * rng.randrange(99))
