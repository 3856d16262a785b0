"""Groups of options: a parameter whose type is a dataclass of options stands for all of its fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from mgcap.cli.options import FileOptions, ModelOptions
from mgcap.cli.settings import Given, option_name, save_options

F = TypeVar("F", bound=Callable[..., Any])


def expanded(command: F) -> F:
    """Make options of the fields of each parameter whose type is a dataclass; add those of :class:`FileOptions`."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        assert isinstance(kind, type)
        groups[name] = kind
        parameters += _of_group(kind)
    added = [p for p in _of_group(FileOptions) if p.name not in {own.name for own in parameters}]
    of_files = {f.name for f in fields(FileOptions)}
    parameters = sorted([*parameters, *added], key=lambda p: p.name in of_files)  # they are listed last

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        whole = dict(given)
        for p in added:
            del given[p.name]
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        if whole.get("to_file") is not None:
            model = next((group for group in made.values() if isinstance(group, ModelOptions)), None)
            save_options(whole["to_file"], [g for p in parameters if (g := _given(p, whole[p.name]))], model)
        return command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run  # type: ignore[return-value]


def _of_group(group: type[Any]) -> list[inspect.Parameter]:
    own = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=own[f.name])
        for f in fields(group)
    ]


def given(group: Any) -> list[Given]:
    """The options of a group with their values."""
    return [g for p in _of_group(type(group)) if (g := _given(p, getattr(group, p.name)))]


def _given(parameter: inspect.Parameter, value: Any) -> Given | None:
    """An option with its value; None if the parameter is no option."""
    for info in get_args(parameter.annotation)[1:]:
        if isinstance(info, OptionInfo) and not isinstance(info, ArgumentInfo):
            declared = [info.default, *(info.param_decls or ())]  # typer takes the first for a default
            return Given(option_name(parameter.name, declared), value, info.help or "")
    return None
