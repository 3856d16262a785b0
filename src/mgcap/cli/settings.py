"""Options in a TOML file: what ``--config`` reads and ``--save-config`` writes.

The file has the command's options under the names of their flags (``train_ratio = 0.8``). Commands that make a model
have its values in the table ``[model]`` and those of fine-tuning in ``[finetune]``, whose presence asks for it; those
that use a model have its file as ``model = "model.mgcap"``. The command line wins over the file.
"""

from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mgcap.cli.console import fail, words
from mgcap.descriptions import FINETUNE, MODEL
from mgcap.errors import DataError, did_you_mean, missing
from mgcap.persistence.files import atomic_path

if TYPE_CHECKING:
    from mgcap.cli.options import ModelOptions

#: Model values that are flags of their own, or follow from the images; the rest of a model's values is for ``[model]``.
ELSEWHERE = ("preset", "num_classes")
#: Options whose values stand in the tables.
IN_TABLES = ("backbone", "granularities", "rotations", "normalisation", "set", "finetune", "tune")
#: Each table, and the parameter of the commands that read it.
_TABLES = (("model", "settings"), ("finetune", "tune"))
#: Options that say what to do with this one run, and a secret.
NOT_KEPT = ("config", "save_config", "json", "csv", "list", "resume", "help", "out", "token")


@dataclass(frozen=True)
class ConfigFile:
    """What a file says.

    Attributes:
        path: The file.
        options: Of the command, by the name of the flag.
        model: Values of the model.
        finetune: Values of fine-tuning; None if it is not asked for.
    """

    path: Path
    options: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    finetune: dict[str, Any] | None = None


@dataclass(frozen=True)
class Given:
    """An option of a command with its value and its help."""

    name: str
    value: Any
    help: str


def parse_pairs(flag: str, pairs: Iterable[str] | None) -> dict[str, Any]:
    """``NAME=VALUE`` pairs to a dictionary; lists and tables are written as in TOML, as ``clip=[1e-5,1e5]``."""
    values: dict[str, Any] = {}
    for item in pairs or ():
        name, equals, text = item.partition("=")
        if not equals:
            raise DataError(f"{flag} takes NAME=VALUE, not '{item}'")
        values[name] = text
        if text[:1] in ("[", "{"):
            try:
                values[name] = tomllib.loads(f"value = {text}")["value"]
            except tomllib.TOMLDecodeError as error:
                raise DataError(f"{flag} {name}: '{text}' is not a list or table ({error})") from None
    return values


def read_config(text: str) -> ConfigFile:
    """Read a file; what is wrong with it ends the command with one sentence."""
    path = Path(text).expanduser()
    try:
        return _read(path)
    except DataError as error:
        fail(f"--config: {error}")


def _read(path: Path) -> ConfigFile:
    if not path.is_file():
        raise DataError(missing("file", path))
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not a TOML file: {error}") from error
    if not isinstance(values.get("model", ""), dict | str | list):
        raise DataError(f"{path}: model must be a table, [model], or the file of a model")
    model = values.pop("model") if isinstance(values.get("model"), dict) else {}
    finetune = values.pop("finetune", None)
    for name, table in (("model", model), ("finetune", {} if finetune is None else finetune)):
        if not isinstance(table, dict):
            raise DataError(f"{path}: {name} must be a table, [{name}]")
        known = [key for key in (MODEL if name == "model" else FINETUNE) if key not in ELSEWHERE]
        for key in table:
            if key not in known:
                raise DataError(f"{path}: '{key}' is unknown in [{name}]{did_you_mean(key, known)}")
    return ConfigFile(path, {key.replace("-", "_"): value for key, value in values.items()}, model, finetune)


def apply_file(context: typer.Context, file: ConfigFile | None) -> ConfigFile | None:
    """Make a file's options the defaults of the command; those of other commands are skipped."""
    if file is None or context.resilient_parsing:
        return file
    own, tables = _options(context.command), {"model": file.model or None, "finetune": file.finetune}
    flags = {parameter.name for parameter in context.command.params}
    skipped = [f"the table [{n}]" for n, flag in _TABLES if tables[n] is not None and flag not in flags]
    elsewhere = _all_options(context.find_root().command)
    defaults: dict[str, Any] = {}
    for key, value in file.options.items():
        if key in own:
            many = isinstance(value, list) or not getattr(own[key], "multiple", False)
            defaults[own[key].name] = value if many else [value]
        elif key in elsewhere:
            skipped.append(key)
        else:
            fail(f"--config: {file.path}: {_unknown(key, [*own, *elsewhere])}")
    for what in skipped:
        words.print(f"{file.path}: {what} is not an option of {context.info_name} and is skipped", markup=False)
    context.default_map = {**(context.default_map or {}), **defaults}
    return file


def _unknown(key: str, known: Iterable[str]) -> str:
    for table, names in (("model", MODEL), ("finetune", FINETUNE)):
        if key in names:
            return f"'{key}' belongs into the table [{table}]"
    return f"the option '{key}' is unknown{did_you_mean(key, [*known, 'model', 'finetune', *MODEL, *FINETUNE])}"


def option_name(name: str, declared: Sequence[Any]) -> str:
    """How an option is called in a file: as its flag, ``format`` for ``--format``."""
    flag = next((text for text in declared if isinstance(text, str) and text.startswith("--")), name)
    return flag.split("/")[0].removeprefix("--").replace("-", "_")


def _options(command: Any) -> dict[str, Any]:
    """What a file may say of a command, by name."""
    named = {option_name(p.name, p.opts): p for p in command.params if p.param_type_name == "option"}
    skipped = {*IN_TABLES, *NOT_KEPT} - {"out"}
    return {name: parameter for name, parameter in named.items() if name not in skipped}


def _all_options(command: Any) -> dict[str, Any]:
    found = _options(command) if any(p.name == "from_file" for p in command.params) else {}
    for child in getattr(command, "commands", {}).values():
        found |= _all_options(child)
    return found


def save_options(path: Path, given: Sequence[Given], options: ModelOptions | None) -> None:
    """Write the options of a command to a file that ``--config`` reads, with tables if it makes a model of them.

    Values of the model that follow from the preset are written as comments, so that the file still means what it
    says with another preset.
    """
    lines = ["# Options of mgcap, for --config."]
    saved = any(option.name == "model" and option.value is not None for option in given)  # a file in place of a table
    elsewhere = NOT_KEPT if options is None else (*IN_TABLES, *NOT_KEPT, *(() if saved else ("model",)))
    for option in given:
        if option.name not in elsewhere:
            lines += _lines(option.name, option.value, option.help)
    lines += [] if options is None or saved else _tables(options)
    with atomic_path(path.expanduser()) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    words.print(f"options: {path}", markup=False)


def _tables(options: ModelOptions) -> list[str]:
    config, chosen = options.config(), options.values()
    lines = ["", "[model]"]
    for name, text in MODEL.items():
        if name not in ELSEWHERE:
            lines += _lines(name, getattr(config, name), text, given=name in chosen)
    recipe = options.recipe() if hasattr(options, "recipe") else None
    if recipe is not None:
        lines += ["", "[finetune]"]
        for name, text in FINETUNE.items():
            lines += _lines(name, getattr(recipe, name), text)
    return lines


def _lines(name: str, value: Any, text: str, given: bool = True) -> list[str]:
    """An option with its description; one without a value, or that was not given, as a comment."""
    shown = f"{name} =" if value is None else f"{name} = {toml(value)}"
    return [f"# {text}", shown if given and value is not None else f"# {shown}"]


def toml(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(str(key))} = {toml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(entry) for entry in value) + "]"
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def read_class_weights(path: Path) -> dict[str, str]:
    """Class weights from a file: JSON, or CSV with the columns class and weight."""
    try:
        text = path.expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--tune class_weights= takes none, auto or a file; {path} cannot be read") from error
    try:
        if path.suffix == ".json":
            return {str(name): value for name, value in json.loads(text).items()}
        return {row["class"]: row["weight"] for row in csv.DictReader(text.splitlines())}
    except (ValueError, KeyError, AttributeError) as error:
        raise DataError(f"{path} must have the columns class and weight") from error
