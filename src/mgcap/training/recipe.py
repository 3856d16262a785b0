"""How to fine-tune: the paper's two stages by default (Sec. IV-B), and what else is usual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import nn

from mgcap.errors import DataError

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]


class Finetune(BaseModel):
    """Every choice of fine-tuning; what is not given is the paper's.

    Attributes:
        epochs: Of the second stage, over everything that is trained.
        batch: Images in one step, over all processes together.
        lr: Learning rate of the second stage.
        optimiser: ``sgd`` (with ``momentum``), ``adam`` or ``adamw``.
        schedule: ``step`` multiplies the rate by ``decay`` every ``decay_epochs``; ``cosine`` lets it fall to zero;
            ``constant``.
        head: How the first stage trains the head on frozen features: ``sgd`` as in the paper, or ``exact``, solved to
            convergence with cross-validated regularisation.
        train_from: First backbone layer that is trained, or ``all``; the layers before it stay as they are.
        copies: With a ``train_from``: keep what the frozen layers give for so many augmented copies of each image, and
            use a different one in each epoch; 0 augments anew and keeps nothing.
        granularities_a_step: Look at so many of the granularities in each step, chosen at random; all by default. The
            finished model looks at all; needs one network for all granularities.
        rotations_a_step: Likewise of the rotations.
        crop: Share of each side that a random crop keeps; by default the field of view of the configuration.
        colour: Change brightness, contrast, saturation and balance of the channels, each by at most this share.
        mixup: Mix each image, or its kept views, with another one and their labels likewise, in a proportion that is
            drawn from Beta(mixup, mixup); 0 mixes nothing.
        random_angle: Turn this share of the images by any angle, with mirrored corners.
        class_weights: ``none``, ``auto`` (rare classes count more) or a weight for each class by name.
        validation: Share of the training images that are held out to watch.
        patience: Stop after so many epochs without a better validation accuracy; needs ``validation``.
        ema: Decay of an average of the weights over the steps, which is then the result; 0 takes the last.
        blend: How much of the weights before the second stage there is in the result (Wortsman et al. 2022).
        precision: ``32`` or ``bf16``.
        chunk: Views that go through the backbone with a graph together; by default as many as the memory allows.
        checkpoint_minutes: How often to save, besides after each epoch.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    epochs: Annotated[int, Field(ge=1, le=10_000)] = 9
    batch: Annotated[int, Field(ge=1, le=100_000)] = 12
    lr: Positive = 1e-3
    optimiser: Literal["sgd", "adam", "adamw"] = "sgd"
    momentum: Share = 0.9
    weight_decay: Annotated[float, Field(ge=0)] = 5e-4
    schedule: Literal["step", "cosine", "constant"] = "step"
    decay: Positive = 0.15
    decay_epochs: Annotated[int, Field(ge=1)] = 3
    head: Literal["sgd", "exact"] = "sgd"
    head_epochs: Annotated[int, Field(ge=1, le=10_000)] = 60
    head_lr: Positive = 0.1
    head_decay_epochs: Annotated[int, Field(ge=1)] = 30
    train_from: str = "all"
    copies: Annotated[int, Field(ge=0, le=100)] = 0
    granularities_a_step: Annotated[int, Field(ge=1)] | None = None
    rotations_a_step: Annotated[int, Field(ge=1)] | None = None
    crop: Annotated[float, Field(gt=0, le=1)] | None = None
    horizontal_flip: bool = True
    vertical_flip: bool = False
    random_angle: Annotated[float, Field(ge=0, le=1)] = 0.0
    colour: Share = 0.0
    mixup: Annotated[float, Field(ge=0, le=10)] = 0.0
    label_smoothing: Share = 0.0
    class_weights: Literal["none", "auto"] | dict[str, Annotated[float, Field(ge=0)]] = "none"
    validation: Share = 0.0
    patience: Annotated[int, Field(ge=1)] | None = None
    ema: Share = 0.0
    blend: Share = 0.0
    precision: Literal["32", "bf16"] = "32"
    chunk: Annotated[int, Field(ge=1)] | None = None
    checkpoint_minutes: Annotated[float, Field(ge=0)] = 5.0

    @model_validator(mode="after")
    def _check_combinations(self) -> Finetune:
        if self.patience is not None and not self.validation:
            raise ValueError("patience: needs a validation part, such as validation=0.1")
        if self.copies and self.train_from == "all":
            raise ValueError("copies: needs train_from, since with train_from='all' no layer is frozen")
        return self

    def rate(self, epoch: float) -> float:
        """The learning rate of the second stage after so many epochs."""
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
