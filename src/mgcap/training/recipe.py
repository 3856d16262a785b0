"""How to fine-tune: the paper's two stages by default (Sec. IV-B), and what else is usual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from mgcap.descriptions import FINETUNE
from mgcap.errors import DataError
from mgcap.values import Values

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Weights = Literal["none", "auto"] | dict[str, Annotated[float, Field(ge=0)]]


class Finetune(Values):
    """Every choice of fine-tuning; what is not given is the paper's. Each field says what it is."""

    epochs: Annotated[int, Field(ge=1, le=10_000, description=FINETUNE["epochs"])] = 9
    batch: Annotated[int, Field(ge=1, le=100_000, description=FINETUNE["batch"])] = 12
    lr: Annotated[Positive, Field(description=FINETUNE["lr"])] = 1e-3
    optimiser: Annotated[Literal["sgd", "adam", "adamw"], Field(description=FINETUNE["optimiser"])] = "sgd"
    momentum: Annotated[Share, Field(description=FINETUNE["momentum"])] = 0.9
    weight_decay: Annotated[float, Field(ge=0, description=FINETUNE["weight_decay"])] = 5e-4
    schedule: Annotated[Literal["step", "cosine", "constant"], Field(description=FINETUNE["schedule"])] = "step"
    decay: Annotated[Positive, Field(description=FINETUNE["decay"])] = 0.15
    decay_epochs: Annotated[int, Field(ge=1, description=FINETUNE["decay_epochs"])] = 3
    head: Annotated[Literal["sgd", "exact"], Field(description=FINETUNE["head"])] = "sgd"
    head_epochs: Annotated[int, Field(ge=1, le=10_000, description=FINETUNE["head_epochs"])] = 60
    head_lr: Annotated[Positive, Field(description=FINETUNE["head_lr"])] = 0.1
    head_decay_epochs: Annotated[int, Field(ge=1, description=FINETUNE["head_decay_epochs"])] = 30
    train_from: Annotated[str, Field(description=FINETUNE["train_from"])] = "all"
    copies: Annotated[int, Field(ge=0, le=100, description=FINETUNE["copies"])] = 0
    granularities_a_step: Annotated[Count | None, Field(description=FINETUNE["granularities_a_step"])] = None
    rotations_a_step: Annotated[Count | None, Field(description=FINETUNE["rotations_a_step"])] = None
    crop: Annotated[Annotated[float, Field(gt=0, le=1)] | None, Field(description=FINETUNE["crop"])] = None
    horizontal_flip: Annotated[bool, Field(description=FINETUNE["horizontal_flip"])] = True
    vertical_flip: Annotated[bool, Field(description=FINETUNE["vertical_flip"])] = False
    random_angle: Annotated[float, Field(ge=0, le=1, description=FINETUNE["random_angle"])] = 0.0
    colour: Annotated[Share, Field(description=FINETUNE["colour"])] = 0.0
    mixup: Annotated[float, Field(ge=0, le=10, description=FINETUNE["mixup"])] = 0.0
    label_smoothing: Annotated[Share, Field(description=FINETUNE["label_smoothing"])] = 0.0
    class_weights: Annotated[Weights, Field(description=FINETUNE["class_weights"])] = "none"
    validation: Annotated[Share, Field(description=FINETUNE["validation"])] = 0.0
    patience: Annotated[Count | None, Field(description=FINETUNE["patience"])] = None
    ema: Annotated[Share, Field(description=FINETUNE["ema"])] = 0.0
    blend: Annotated[Share, Field(description=FINETUNE["blend"])] = 0.0
    precision: Annotated[Literal["32", "bf16"], Field(description=FINETUNE["precision"])] = "32"
    chunk: Annotated[Count | None, Field(description=FINETUNE["chunk"])] = None
    checkpoint_minutes: Annotated[float, Field(ge=0, description=FINETUNE["checkpoint_minutes"])] = 5.0

    @model_validator(mode="after")
    def _check_combinations(self) -> Finetune:
        if self.patience is not None and not self.validation:
            raise ValueError("patience: needs a validation part, such as validation=0.1")
        if self.copies and self.train_from == "all":
            raise ValueError("copies: needs train_from, since with train_from='all' no layer is frozen")
        return self

    def rate(self, epoch: float) -> float:
        """The learning rate of the second stage after a number of epochs."""
        if self.schedule == "step":
            return self.lr * self.decay ** (int(epoch) // self.decay_epochs)
        if self.schedule == "cosine":
            return self.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, epoch / self.epochs)))
        return self.lr

    def make_optimiser(
        self, parameters: Sequence[nn.Parameter], head: torch.Tensor | None = None, side: int = 1
    ) -> torch.optim.Optimizer:
        """The optimiser that was asked for.

        Each group of parameters has a ``scale`` by which the learning rate is multiplied: the head's weight learns
        faster, see :meth:`head_scale`.

        Args:
            parameters: What is trained.
            head: The weight of the head among them.
            side: Of the matrices whose descriptors the head sees.
        """
        groups: list[dict[str, Any]] = [{"params": [p for p in parameters if p is not head], "scale": 1.0}]
        if head is not None:
            scale = self.head_scale(side, self.optimiser)
            groups.append({"params": [head], "scale": scale, "weight_decay": self.weight_decay / scale})
        if self.optimiser == "sgd":
            return torch.optim.SGD(groups, self.lr, self.momentum, weight_decay=self.weight_decay)
        kind: Any = torch.optim.Adam if self.optimiser == "adam" else torch.optim.AdamW
        made: torch.optim.Optimizer = kind(groups, self.lr, weight_decay=self.weight_decay)
        return made

    @staticmethod
    def head_scale(side: int, optimiser: str = "sgd") -> float:
        """By how much faster the head's weight learns.

        The paper's rates are for matrices as the spectral layer gives them: the root of a matrix of ``side`` features
        of mean square one has the length ``sqrt(side)``. Our descriptors have length one, so the same function has a
        weight ``sqrt(side)`` times larger and a gradient as many times smaller. To learn it at the paper's rate, that
        rate is to be multiplied by both (by the first alone, if the optimiser does not see the scale of a gradient),
        and the weight decay to be divided by as much.
        """
        return float(side) if optimiser == "sgd" else math.sqrt(side)

    def weights_of(self, classes: Sequence[str], targets: Sequence[int]) -> torch.Tensor:
        """The weight of each class in the loss; ``auto`` gives every class the same sum of weights."""
        if self.class_weights == "none":
            return torch.ones(len(classes))
        if self.class_weights == "auto":
            counts = torch.bincount(torch.as_tensor(targets), minlength=len(classes)).clamp_min(1)
            return len(targets) / (len(classes) * counts.float())
        strange = [name for name in self.class_weights if name not in classes]
        missing = [name for name in classes if name not in self.class_weights]
        if strange or missing:
            name = (strange or missing)[0]
            raise DataError(f"class weights: '{name}' is " + ("not a class" if strange else "missing"))
        return torch.tensor([float(self.class_weights[name]) for name in classes])
