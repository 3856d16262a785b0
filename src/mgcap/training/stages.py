"""Training in order: with the backbone frozen, and, if wanted, all of it after that."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mgcap.data.splits import make_split
from mgcap.data.stream import Item, to_tensor
from mgcap.errors import DataError, ImageError, MgcapError
from mgcap.inference.calibration import calibration_views, fit_reductions, pca_images
from mgcap.inference.engines import Engine
from mgcap.inference.extraction import Extractor
from mgcap.inference.fingerprints import rule_fingerprints
from mgcap.inference.preparation import open_cache, prepare_engine, universal_engine
from mgcap.inference.universal import UniversalDescriptor, universal_for
from mgcap.model import MGCAP
from mgcap.persistence.cache import content_key
from mgcap.training.checkpoint import FILE, read_checkpoint
from mgcap.training.distributed import INSTALL, open_fabric, processes, rank, share
from mgcap.training.finetune import Finetuner, History
from mgcap.training.gradient_cache import Trunk
from mgcap.training.outcome import Outcome, solve_head
from mgcap.training.recipe import Finetune
from mgcap.training.setup import Setup, TrainingSet
from mgcap.training.shared import shared_descriptors
from mgcap.training.temperature import cool

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def prepare_descriptor(setup: Setup, model: MGCAP, items: Sequence[Item]) -> tuple[Engine, UniversalDescriptor | None]:
    """Give a model its engine and, if it has a PCA, its axes: those that ship with the package, or its own.

    Args:
        setup: How to train.
        model: Its backbones have their weights.
        items: The training images; every process has the same.
    """
    runtime = setup.runtime
    universal = universal_for(model) if setup.descriptor == "universal" else None
    if universal is not None:
        universal.install(model)
        return universal_engine(universal, model, runtime), universal
    engine = prepare_engine(model, runtime, lambda: calibration_views(model, items, runtime.seed))
    if model.config.reduction == "pca":
        everything = range(len(items))
        if rank() == 0:
            with runtime.progress("Fitting PCA", pca_images([everything])) as step:
                (fitted,) = fit_reductions(model, engine, items, [everything], runtime.seed, step)
            model.reduction.load_state_dict(fitted.state_dict())
        share([model.reduction.basis, model.reduction.mean])
        model.reduction.fitted.fill_(True)
    return engine, None


def frozen_stage(setup: Setup, model: MGCAP, data: TrainingSet) -> Outcome:
    """Fit reduction and head to features of the frozen backbone; several processes share the work.

    Args:
        setup: How to train; if fine-tuning follows, its recipe says how the head is trained.
        model: Gets reduction and head.
        data: The training images.
    """
    runtime, items = setup.runtime, data.items
    progress = runtime.progress
    engine, universal = prepare_descriptor(setup, model, items)
    skipped: list[tuple[int, ImageError]] = []
    extractor = Extractor(model, engine, open_cache(runtime))
    with progress("Extracting features", len(items)) as step:
        rows, kept = shared_descriptors(extractor, items, lambda i, error: skipped.append((i, error)), step)
    told = {i for i, _ in skipped} | set(kept)
    skipped += [
        (i, ImageError(f"{items[i]}: another process could not read it")) for i in range(len(items)) if i not in told
    ]
    learnt = data.part(kept)
    lost = sorted(set(range(len(data.classes))) - set(learnt.targets))
    if lost:
        raise DataError(f"no image of class '{data.classes[lost[0]]}' could be read: {skipped[0][1]}")
    outcome = Outcome(kept, skipped, engine, universal)
    if rows is not None:
        solve_head(setup, model, rows, learnt, outcome)
    share([model.head.weight, model.head.bias])
    return outcome


def both_stages(
    setup: Setup, model: MGCAP, data: TrainingSet, folder: Path | None = None, resume: bool = False
) -> Outcome:
    """The head on frozen features, then everything.

    Args:
        setup: How; with a recipe for fine-tuning.
        model: Is trained in place.
        data: The training images.
        folder: For checkpoint and logs.
        resume: Resume from the checkpoint in ``folder``, if there is one.
    """
    recipe, runtime = setup.finetune, setup.runtime
    assert recipe is not None
    _check_recipe(recipe, model)
    notes: dict[str, Any] = {"fingerprint": run_fingerprint(setup, model, data)}
    before = _checkpoint_notes(folder, resume, notes["fingerprint"])
    if resume and before is None:
        runtime.progress.say("there is no checkpoint yet, so training begins anew")
    fabric = _open_fabric(model, recipe, folder)
    watched = _validation_part(data, recipe, runtime.seed)
    held_out = set(watched)
    learnt = [i for i in range(len(data)) if i not in held_out]
    outcome = _first_stage(setup, model, data, learnt, before)
    watching = data.part(watched)
    tuner = Finetuner(
        model,
        recipe,
        data.part(outcome.kept),
        fabric,
        validation=watching,
        runtime=runtime,
        folder=folder,
        notes=notes | {"kept": outcome.kept, "skipped": [i for i, _ in outcome.skipped]},
    )
    if before is None:
        tuner.save()
    else:
        tuner.resume()
        runtime.progress.say(f"resumed after epoch {tuner.history.epoch}, step {tuner.history.step}")
    outcome.history = _run(tuner, fabric)
    if watched:
        found = tuner.validation_probabilities()
        outcome.temperature, outcome.held_out = cool(model, found, torch.as_tensor(watching.targets))
    # the head has learnt fp32 features and int8 would change some labels, so that is for those who ask for it
    views = (lambda: calibration_views(model, tuner.items, runtime.seed)) if runtime.engine != "auto" else None
    outcome.engine = prepare_engine(model, runtime, views)
    return outcome


def _check_recipe(recipe: Finetune, model: MGCAP) -> None:
    try:
        Trunk.of(model, recipe.train_from)
    except ValueError as error:
        raise DataError(f"train_from: {error}") from error
    if recipe.granularities_a_step and not model.config.share_granularities:
        raise DataError("granularities_a_step: needs share_granularities=True, one network for all granularities")


def _open_fabric(model: MGCAP, recipe: Finetune, folder: Path | None) -> Fabric:
    """Fabric with logs in a folder; the model is moved to its device."""
    try:
        from lightning_fabric.loggers.tensorboard import TensorBoardLogger

        loggers = [TensorBoardLogger(folder, name="tensorboard", version="")] if folder and rank() == 0 else []
    except ImportError as error:
        raise MgcapError(f"fine-tuning needs lightning-fabric and tensorboardX: {INSTALL}") from error
    fabric = open_fabric(model.mean.device, recipe.precision, loggers)
    model.to(fabric.device)
    return fabric


def _first_stage(
    setup: Setup, model: MGCAP, data: TrainingSet, learnt: Sequence[int], before: dict[str, Any] | None
) -> Outcome:
    """What the second stage begins with, by numbers of all images: the frozen stage, or what a checkpoint says."""
    if before is not None:
        skipped = [(i, ImageError(f"{data.items[i]}: cannot be read")) for i in before["skipped"]]
        return Outcome(before["kept"], skipped)
    first = frozen_stage(setup, model, data.part(learnt))
    kept = [learnt[k] for k in first.kept]
    return Outcome(kept, [(learnt[k], error) for k, error in first.skipped], universal=first.universal)


def _run(tuner: Finetuner, fabric: Fabric) -> History:
    """Train; whatever ends it early, say where it can be resumed."""
    try:
        history = tuner.run()
    except BaseException as error:
        where = f"the checkpoint {tuner.checkpoint}" if tuner.checkpoint and tuner.checkpoint.exists() else ""
        how = f"; do the same with `resume` to resume from {where}" if where else ""
        if isinstance(error, MgcapError):
            raise MgcapError(f"{error}{how}") from error
        if isinstance(error, KeyboardInterrupt) and processes() > 1:
            raise MgcapError(f"training was stopped, perhaps because another process died{how}") from error
        if rank() == 0 and how:
            tuner.progress.say(f"training was stopped{how}")
        raise
    for logger in fabric.loggers:
        logger.finalize("success")
    return history


def run_fingerprint(setup: Setup, model: MGCAP, data: TrainingSet) -> dict[str, Any]:
    """What must be the same for a run to be resumed."""
    assert setup.finetune is not None
    fingerprints = hashlib.sha256()
    for item, target in zip(data.items, data.targets, strict=True):
        fingerprints.update((content_key(item) or b"?") + bytes(str(target), "ascii"))
    return {
        "configuration": model.config.model_dump(mode="json"),
        "options": setup.finetune.model_dump(mode="json", exclude={"chunk", "checkpoint_minutes"}),
        "weights": str(setup.weights),
        "seed": setup.runtime.seed,
        "images": fingerprints.hexdigest(),
        **rule_fingerprints(model.config),
    }


def _checkpoint_notes(folder: Path | None, resume: bool, wanted: dict[str, Any]) -> dict[str, Any] | None:
    """What the checkpoint in a folder says; None if there is none."""
    path = folder / FILE if folder else None
    if path is None or not path.exists():
        return None
    if not resume:
        raise DataError(f"{folder} holds a run that is not finished; add `resume` to resume it, or remove {path}")
    _, values = read_checkpoint(path)
    kept = values.get("fingerprint", values.get("identity", {}))  # as earlier versions called it
    changed = [name for name in wanted if kept.get(name) != wanted[name]]
    if changed:
        raise DataError(
            f"{path} belongs to a run with other {', '.join(changed)}; do the same as then, or give another folder"
        )
    return values


def _validation_part(data: TrainingSet, recipe: Finetune, seed: int) -> list[int]:
    """Images to hold out, of those that can be read."""
    if not recipe.validation:
        return []
    fingerprints = [content_key(item) for item in data.items]
    split = make_split(data.targets, 1 - recipe.validation, seed, fingerprints, data.classes)
    return [i for i in split.test if _readable(data.items[i])]


def _readable(item: Item) -> bool:
    try:
        to_tensor(item)
    except ImageError:
        return False
    return True
