"""The second stage: backbone, reduction and head together, from the head that the first stage found.

Whatever is random comes from the seed and the number of the epoch, so a run that was killed resumes as if nothing had
happened, and several processes walk through the same batches, each with its part.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mgcap.inference.engines.torch import keep_freed_memory
from mgcap.inference.pipeline import prefetch
from mgcap.inference.preparation import open_cache
from mgcap.model import MGCAP
from mgcap.persistence.files import write_rows
from mgcap.runtime import Runtime
from mgcap.training.checkpoint import FILE, optimiser_tensors, read_checkpoint, restore_optimiser, write_checkpoint
from mgcap.training.distributed import Exchange, own_part, rank, total
from mgcap.training.feed import Feed
from mgcap.training.gradient_cache import Choice, Trunk, Views, choose_chunk, gradient_step, logits_of
from mgcap.training.recipe import Finetune
from mgcap.training.setup import TrainingSet

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Row = dict[str, Any]


@dataclass
class History:
    """How far a run has come; what a checkpoint keeps besides tensors."""

    epoch: int = 0  #: epochs that are complete
    step: int = 0  #: steps of the next one that are complete
    steps: list[Row] = field(default_factory=list)  #: epoch, step, lr, loss, accuracy of the batch
    epochs: list[Row] = field(default_factory=list)  #: epoch, loss, accuracy, validation_loss, validation_accuracy
    best: float = -1.0
    best_epoch: int = 0

    def stopped(self, recipe: Finetune) -> bool:
        """Whether there is nothing more to do."""
        late = recipe.patience is not None and self.epoch - self.best_epoch >= recipe.patience
        return self.epoch >= recipe.epochs or late


class Finetuner:
    """Trains a model in place.

    Args:
        model: With the head of the first stage, on its device.
        recipe: How.
        data: Training images that can be read.
        fabric: Launched.
        validation: Images to watch.
        runtime: Its seed is that of order and augmentation; its cache keeps what the frozen layers give.
        folder: Takes checkpoint and logs; None keeps none.
        notes: Stand in the checkpoint for whoever resumes it.
    """

    def __init__(
        self,
        model: MGCAP,
        recipe: Finetune,
        data: TrainingSet,
        fabric: Fabric,
        *,
        validation: TrainingSet | None = None,
        runtime: Runtime | None = None,
        folder: Path | None = None,
        notes: dict[str, Any] | None = None,
    ) -> None:
        runtime = runtime or Runtime()
        self.model, self.recipe, self.fabric = model, recipe, fabric
        self.seed, self.progress = runtime.seed, runtime.progress
        self.items, self.targets = data.items, torch.as_tensor(data.targets)
        self.validation = validation or TrainingSet()
        self.folder, self.notes = folder, notes or {}
        self.device = model.mean.device
        keep_freed_memory()
        self.weights = recipe.weights_of(data.classes, data.targets).to(self.device)
        self.trunk = Trunk.of(model, recipe.train_from)
        self._choose_parameters()
        self.chunk = recipe.chunk or choose_chunk(model, self.trunk)
        cache = open_cache(runtime) if recipe.copies else None
        self.feed = Feed(model, self.trunk, recipe, data.items, self.seed, cache, fabric.autocast)
        self.history = History()
        self._saved = time.monotonic()

    def _choose_parameters(self) -> None:
        """What is trained, with its optimiser, and copies of it where some are wanted."""
        model, recipe = self.model, self.recipe
        model.eval().requires_grad_(False)  # batch norms keep the statistics they came with
        for part in (*self.trunk.trained, model.reduction, model.head):
            part.requires_grad_(True)
        self.names = [name for name, p in model.named_parameters() if p.requires_grad]
        self.parameters: list[nn.Parameter] = [p for p in model.parameters() if p.requires_grad]
        self.optimiser = recipe.make_optimiser(self.parameters, model.head.weight, model.side)
        self.exchange = Exchange(self.fabric, self.parameters)
        self.start = [p.detach().clone() for p in self.parameters] if recipe.blend else None
        self.average = [p.detach().clone() for p in self.parameters] if recipe.ema else None
        self.best: list[Tensor] | None = None

    @property
    def checkpoint(self) -> Path | None:
        """The file that a killed run resumes from."""
        return self.folder / FILE if self.folder else None

    def run(self) -> History:
        """Train until the end; the model then has the best weights on validation images, or those of the end."""
        history, recipe = self.history, self.recipe
        self.feed.fill(self.validation.items, self.progress)
        batches = -(-len(self.items) // recipe.batch)
        if len(self.validation) and self.best is None:
            loss, accuracy = self._watch()
            self.progress.say(f"before: {100 * accuracy:.2f} % on validation images (loss {loss:.4f})")
        while not history.stopped(recipe):
            with self.progress(f"Epoch {history.epoch + 1} of {recipe.epochs}", batches) as advance:
                advance(history.step)
                with closing(prefetch(self.feed.batches(history.epoch, history.step))) as upcoming:
                    for batch, views in upcoming:
                        self._step(batch, views, batches)
                        advance(1)
                        if time.monotonic() - self._saved > 60 * recipe.checkpoint_minutes:
                            self.save()
            self._finish_epoch()
        self._install(self.best or self.result())
        self.model.requires_grad_(False)
        return history

    # one step

    def _step(self, batch: list[int], views: Views, batches: int) -> None:
        history, recipe = self.history, self.recipe
        lr = recipe.rate(history.epoch + history.step / batches)
        for group in self.optimiser.param_groups:
            group["lr"] = lr * group["scale"]
        own = list(own_part(batch))
        targets = self.targets[own].to(self.device)
        mixed = self.feed.partners(own, history.epoch) if recipe.mixup else None
        whole = self.weights[self.targets[batch].to(self.device)].sum()  # all processes divide by the same
        metrics = torch.zeros(2, dtype=torch.float64, device=self.device)
        self.optimiser.zero_grad(set_to_none=True)
        if len(targets):
            loss, logits = gradient_step(
                self.model,
                views,
                self.trunk,
                lambda logits: self._loss(logits, targets, mixed) / whole,
                self.chunk,
                self.fabric.autocast,
                self._choice(),
            )
            metrics += torch.stack((loss.double(), (logits.argmax(1) == targets).sum().double()))
        self.exchange()
        self.optimiser.step()
        if self.average is not None:
            with torch.no_grad():
                torch._foreach_lerp_(self.average, list(self.parameters), 1 - recipe.ema)
        loss_value, right = total(metrics).tolist()
        history.steps.append(
            {"epoch": history.epoch, "step": history.step, "lr": lr, "loss": loss_value, "accuracy": right / len(batch)}
        )
        history.step += 1
        self.fabric.log_dict({"loss": loss_value, "lr": lr}, history.epoch * batches + history.step)

    def _choice(self) -> Choice:
        """Which views this step looks at, the same in every process."""
        recipe, all_views = self.recipe, Choice.everything(self.model)
        rng = np.random.default_rng([self.seed, self.history.epoch, self.history.step, 2])
        granularities = rng.permutation(all_views.granularities)[: recipe.granularities_a_step]
        rotations = rng.permutation(all_views.rotations)[: recipe.rotations_a_step]
        return Choice(sorted(granularities.tolist()), sorted(rotations.tolist()))

    def _loss(self, logits: Tensor, targets: Tensor, mixed: tuple[list[int], Tensor] | None = None) -> Tensor:
        each = self._losses(logits, targets)
        if mixed is None:
            return each.sum()
        others, shares = self.targets[mixed[0]].to(self.device), mixed[1].to(each)
        return (shares * each + (1 - shares) * self._losses(logits, others)).sum()

    def _losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        each = F.cross_entropy(logits, targets, reduction="none", label_smoothing=self.recipe.label_smoothing)
        return each * self.weights[targets]

    # after an epoch

    def _finish_epoch(self) -> None:
        history = self.history
        own = [row for row in history.steps if row["epoch"] == history.epoch]
        row: Row = {
            "epoch": history.epoch,
            "loss": float(np.mean([r["loss"] for r in own])),
            "accuracy": float(np.mean([r["accuracy"] for r in own])),
        }
        history.epoch, history.step = history.epoch + 1, 0
        line = f"epoch {history.epoch}: loss {row['loss']:.4f}, accuracy {100 * row['accuracy']:.2f} % while training"
        if len(self.validation):
            row["validation_loss"], row["validation_accuracy"] = self._watch()
            line += f", {100 * row['validation_accuracy']:.2f} % on validation images"
            line += f" (loss {row['validation_loss']:.4f})"
        history.epochs.append(row)
        self.fabric.log_dict({f"epoch/{name}": value for name, value in row.items() if name != "epoch"}, history.epoch)
        self.progress.say(line)
        self.save()

    def _watch(self) -> tuple[float, float]:
        """Look at the validation images and keep the weights if they are the best so far."""
        loss, accuracy = self.validate()
        if accuracy - 1e-6 * loss > self.history.best:  # the loss decides between equal accuracies
            self.history.best, self.history.best_epoch = accuracy - 1e-6 * loss, self.history.epoch
            self.best = [p.detach().clone() for p in self.result()]
        return loss, accuracy

    @torch.no_grad()
    def result(self) -> list[Tensor]:
        """The weights that the run would end with now: averaged and blended, if that is wanted."""
        values: list[Tensor] = [*(self.average or self.parameters)]
        if self.start is not None:
            blend = self.recipe.blend
            values = [torch.lerp(end, first, blend) for end, first in zip(values, self.start, strict=True)]
        return values

    def validate(self) -> tuple[float, float]:
        """Loss and accuracy on the validation images by the weights that the run would end with now."""
        trained = self._install(self.result())
        probabilities = self.validation_probabilities()
        self._install(trained)
        targets = torch.as_tensor(self.validation.targets)
        loss = F.nll_loss(probabilities.clamp_min(1e-30).log(), targets)
        return float(loss), float((probabilities.argmax(1) == targets).double().mean())

    def validation_probabilities(self) -> Tensor:
        """Probabilities ``[n, K]`` of the validation images by the model as it is, on the CPU."""
        items = self.validation.items
        found = torch.zeros(len(items), self.model.config.num_classes, dtype=torch.float64)
        places = own_part(range(len(items)))
        for start in range(0, len(places), self.recipe.batch):
            some = list(places[start : start + self.recipe.batch])
            views = self.feed.unchanged([items[i] for i in some])
            logits = logits_of(self.model, views, self.trunk, self.chunk, self.fabric.autocast)
            found[some] = logits.double().softmax(1).cpu()
        return total(found)

    @torch.no_grad()
    def _install(self, values: Sequence[Tensor]) -> list[Tensor]:
        """Give the parameters other values and return those they had."""
        before = [p.detach().clone() for p in self.parameters]
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)
        return before

    # files

    def save(self) -> None:
        """Write checkpoint and logs; only the first process does."""
        self._saved = time.monotonic()
        if self.checkpoint is not None and self.folder is not None and rank() == 0:
            tensors = optimiser_tensors(self.optimiser)
            kinds = {"model": self.parameters, "start": self.start, "average": self.average, "best": self.best}
            for kind, values in kinds.items():
                tensors |= {f"{kind}.{name}": value for name, value in zip(self.names, values or (), strict=False)}
            tensors |= {f"fixed.{name}": buffer for name, buffer in self.model.reduction.named_buffers()}
            write_checkpoint(self.checkpoint, tensors, {**self.notes, "history": self.history.__dict__})
            write_rows(self.folder / "steps.csv", self.history.steps)
            write_rows(self.folder / "epochs.csv", self.history.epochs)

    def resume(self) -> None:
        """Take up the run that the checkpoint belongs to."""
        assert self.checkpoint is not None
        tensors, values = read_checkpoint(self.checkpoint)
        self._install([tensors[f"model.{name}"] for name in self.names])
        for name, buffer in self.model.reduction.named_buffers():
            buffer.copy_(tensors[f"fixed.{name}"])
        restore_optimiser(self.optimiser, tensors)
        for kind in ("start", "average", "best"):
            if f"{kind}.{self.names[0]}" in tensors:
                setattr(self, kind, [tensors[f"{kind}.{name}"].to(self.device) for name in self.names])
        self.history = History(**values["history" if "history" in values else "course"])  # its former name
