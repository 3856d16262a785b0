"""A model made ready: built, with the weights of its backbone, on its device, with an engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from mgcap.backbones import BACKBONES
from mgcap.backbones.pretrained import Weights, is_cached, is_stock, load_weights, load_weights_file, state_hash
from mgcap.config import MGCAPConfig
from mgcap.data.synthetic import calibration_scenes
from mgcap.errors import BundleError, MgcapError
from mgcap.inference import engines
from mgcap.inference.calibration import calibration_views
from mgcap.inference.engines import Calibration, Engine
from mgcap.inference.engines.openvino import MISFIT
from mgcap.inference.fingerprints import rule_fingerprints
from mgcap.inference.universal import UniversalDescriptor
from mgcap.model import MGCAP
from mgcap.persistence.cache import FeatureCache
from mgcap.runtime import Runtime, seeded


def build_model(config: MGCAPConfig, weights: str | Path, runtime: Runtime) -> tuple[MGCAP, dict[str, Any]]:
    """A model with its backbone's weights, and where those come from.

    Args:
        config: What to build.
        weights: ``imagenet`` (fetched once, kept in the cache), a file, or ``random``.
        runtime: Its device and seed.
    """
    with seeded(runtime.seed):
        model = MGCAP(config).eval().requires_grad_(False)
    if weights == "random":
        backbone = {"name": config.backbone, "stock": False, "sha256": "", "source": "random"}
    else:
        found = _find_weights(weights, config.backbone, runtime)
        model.load_backbone(found.state, found.source)
        stock = is_stock(config.backbone, found.sha256)
        backbone = {"name": config.backbone, "stock": stock, "sha256": found.sha256, "source": found.source}
    return model.to(runtime.torch_device()), backbone


def _find_weights(weights: str | Path, backbone: str, runtime: Runtime) -> Weights:
    if str(weights) == "imagenet":
        return load_weights(backbone, runtime.progress.say)
    return load_weights_file(weights, backbone)


def prepare_engine(model: MGCAP, runtime: Runtime, calibration: Calibration | dict[str, torch.Tensor] | None) -> Engine:
    """Open the engine that was asked for.

    Args:
        model: Its backbones have their weights.
        runtime: Says which engine.
        calibration: For int8: gives views, or the constants of another engine; None if there are neither.
    """
    progress = runtime.progress
    name = engines.choose_engine(runtime.engine, model.head.weight.device.type, progress.say)
    if name == "openvino" and calibration is None:  # a model that was trained in fp32
        name = "openvino-fp32"
    networks, size, views = list(model.backbones), model.config.size, calibration or {}
    code = rule_fingerprints(model.config).get("backbone", "")
    try:
        return engines.open_engine(name, networks, size, views, progress, code)
    except MgcapError:
        raise
    except Exception as error:  # whatever a converter may raise on an unusual network
        if runtime.engine != "auto" or name == "torch":
            raise MgcapError(f"the engine '{name}' cannot run {model.config.backbone}: {error}") from error
        progress.say(f"the engine '{name}' cannot run {model.config.backbone}, so torch does it ({error})")
        return engines.open_engine("torch", networks, size, views, progress)


def open_loaded_engine(model: MGCAP, runtime: Runtime, int8: dict[str, torch.Tensor]) -> Engine:
    """The engine of a loaded model: int8 if it was trained so and the same versions are here.

    Args:
        model: With its weights.
        runtime: Says which engine.
        int8: Constants of the int8 engine that it was trained with, if any.
    """
    say = runtime.progress.say
    try:
        engine = prepare_engine(model, runtime, int8 or None)
    except MgcapError as error:
        if runtime.engine != "auto" or str(error) != MISFIT:
            raise
        say(f"{error}; fp32 is used")
        engine = prepare_engine(model, runtime, None)
    if int8 and engine.name != "openvino" and runtime.engine == "auto":
        say("this model was trained with int8 features; fp32 is used here, which may differ a little")
    return engine


def reopen_engine(engine: Engine, model: MGCAP, runtime: Runtime) -> Engine:
    """An engine like another one, for the weights that a model has now.

    The int8 constants of the other one were found for other weights; new ones are found on drawn scenes.

    Raises:
        MgcapError: If there are no weights, or the engine cannot be used where they are.
    """
    if model.head.weight.is_meta:
        raise MgcapError("the model's weights are on the device 'meta', which holds no numbers; load some first")
    runtime.progress.say("the model's weights were changed or moved, so its engine is opened again")
    views = partial(calibration_views, model, calibration_scenes()) if engine.name == "openvino" else None
    return prepare_engine(model, runtime, views)


def _stock_hash(model: MGCAP, own: str) -> str | None:
    """The hash of the published weights that a backbone, which may be cut, is a part of; None if it is not."""
    name = model.config.backbone
    if is_stock(name, own):
        return own
    record = BACKBONES.get(name)
    if record is None or record.weights is None or not record.weights.sha256 or not is_cached(name):
        return None
    whole = load_weights(name)
    part = {key: whole.state[key] for key in model.backbones[0].state_dict() if key in whole.state}
    return whole.sha256 if state_hash(part) == own else None


def backbone_record(model: MGCAP, source: str) -> dict[str, Any]:
    """What a model file says of the backbone's weights; ``source`` is where they come from, if they are not stock."""
    name = model.config.backbone
    hashes = {state_hash(backbone.state_dict()) for backbone in model.backbones}
    if len(hashes) == 1 and (stock := _stock_hash(model, hashes.pop())):
        return {"name": name, "stock": True, "sha256": stock, "source": "imagenet"}
    return {"name": name, "stock": False, "sha256": "", "source": source}


def open_cache(runtime: Runtime) -> FeatureCache:
    """The feature cache, on disk or in memory."""
    return FeatureCache(memory=not runtime.cache, say=runtime.progress.say)


def universal_engine(universal: UniversalDescriptor, model: MGCAP, runtime: Runtime) -> Engine:
    """The engine of a model that uses a universal descriptor.

    The int8 constants come with it; where they do not fit (another size, or other versions of OpenVINO and NNCF), the
    engine is calibrated on drawn scenes.
    """
    drawn = partial(calibration_views, model, calibration_scenes())
    if universal.card.size != model.config.size or not universal.int8:
        return prepare_engine(model, runtime, drawn)
    constants = universal.int8 if len(model.backbones) == 1 else None
    try:
        return prepare_engine(model, runtime, constants or drawn)
    except BundleError as error:
        if str(error) != MISFIT:
            raise
        return prepare_engine(model, runtime, drawn)
