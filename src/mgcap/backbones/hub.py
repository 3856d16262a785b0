"""What ``hf:NAME`` stands for, by the configuration files of a folder or of the hub, which are read as data."""

from __future__ import annotations

import json
import re
from functools import cache, partial
from pathlib import Path
from typing import Any

from mgcap.backbones.architecture import FAMILIES, PREFIX, Architecture, parse_architecture, raw_values
from mgcap.backbones.readers import one_line
from mgcap.backbones.record import IMAGENET_MEAN, IMAGENET_STD
from mgcap.errors import WeightsError, missing

#: Bytes of a configuration file; those with the names of 21,841 classes have less.
MAX_CONFIG_BYTES = 8 << 20
_HUB_NAME = r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?"


def library() -> Any:
    """The transformers library; raises with one sentence where it is missing."""
    try:
        import transformers
    except Exception as error:
        raise ValueError(
            f"backbone: networks named hf:NAME need transformers (pip install 'mgcap[hf]'): {error}"
        ) from error
    return transformers


def read_architecture(name: str) -> Architecture:
    """What ``hf:NAME`` is: from a folder, or from the hub.

    Raises:
        ValueError: If a path, or a name in a folder that is here, is not there; or it is a network of another kind.
        WeightsError: If the hub cannot be asked.
    """
    place = name.removeprefix(PREFIX)
    folder = Path(place).expanduser()
    if folder.is_dir():
        return _architecture(name, partial(_from_folder, folder))
    if not re.fullmatch(_HUB_NAME, place, re.ASCII) or ("/" in place and folder.parent.is_dir()):  # no name of the hub
        raise ValueError(
            f"backbone: {missing('folder', folder)}; hf:NAME takes a folder, or the name of a network on the hub"
        )
    return _of_hub(name)


@cache
def _of_hub(name: str) -> Architecture:
    return _architecture(name, partial(_from_hub, name.removeprefix(PREFIX)))


def _from_folder(folder: Path, file: str) -> dict[str, Any]:
    path = folder / file
    if not path.is_file():
        return {}
    return _json(path)


def _from_hub(repository: str, file: str) -> dict[str, Any]:
    library()
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        return _json(Path(hf_hub_download(repository, file)))
    except Exception as error:
        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            return {}
        raise WeightsError(
            f"'{PREFIX}{repository}' is not in the cache and the hub cannot give it ({one_line(error)}); "
            f"check the name and the connection (HF_HUB_OFFLINE, HF_TOKEN), or give a folder, {PREFIX}/path/to/folder"
        ) from error


def _json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise ValueError("it is too large")
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise WeightsError(f"{path} cannot be read as JSON: {one_line(error)}") from error
    if not isinstance(found, dict):
        raise WeightsError(f"{path} holds no configuration")
    return found


def _architecture(name: str, read: Any) -> Architecture:
    found = read("config.json")
    if found.get("model_type") == "clip":
        found = {**(found.get("vision_config") or {}), "model_type": "clip_vision_model"}
    kind = found.get("model_type")
    if kind not in FAMILIES:
        raise ValueError(
            f"backbone: '{name}' is {'of the kind ' + str(kind) if kind else 'no network of transformers'}; "
            f"allowed are {', '.join(FAMILIES)}"
        )
    try:
        own = vars(configuration(kind, found))
    except Exception as error:  # whatever transformers thinks of a configuration
        raise ValueError(
            f"backbone: transformers cannot read the configuration of '{name}': {one_line(error)}"
        ) from error
    seen = read("preprocessor_config.json") or read("processor_config.json").get("image_processor") or {}
    plain = seen.get("do_normalize") is False
    values = {key: own[key] for key in _fields(kind) if key in own}
    given = {
        "name": name,
        "kind": kind,
        "values": {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()},
        "mean": [0.0] * 3 if plain else seen.get("image_mean") or IMAGENET_MEAN,
        "std": [1.0] * 3 if plain else seen.get("image_std") or IMAGENET_STD,
    }
    given["values"] = raw_values(given["values"])
    return parse_architecture(json.dumps(given))


def _fields(kind: str) -> set[str]:
    """The values that say what a network of this kind is: those of its own class, not of every configuration."""
    transformers = library()
    own = getattr(transformers, FAMILIES[kind].configuration).__dataclass_fields__
    return {
        key for key in set(own) - set(transformers.PreTrainedConfig.__dataclass_fields__) if not key.startswith("_")
    }


def configuration(kind: str, values: dict[str, Any]) -> Any:
    """The configuration of a network, as transformers has it."""
    wanted = _fields(kind)
    made = getattr(library(), FAMILIES[kind].configuration)
    return made(**{key: value for key, value in values.items() if key in wanted})


def architecture_of(name: str, known: Any) -> str | None:
    """What a network of transformers is: as it is known already, or else as its folder or the hub says."""
    if not name.startswith(PREFIX):
        return None
    if isinstance(known, str) and parse_architecture(known).name == name:
        return known
    return read_architecture(name).text()
