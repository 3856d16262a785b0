"""Groups of options: a parameter whose type is a dataclass of options stands for all of its fields."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from mgcap.cli.settings import Given, save_options

F = TypeVar("F", bound=Callable[..., Any])


def expanded(command: F) -> F:
    """Make options of the fields of every parameter whose type is a dataclass, and heed ``--save-config``."""
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
        own = get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=own[f.name])
            for f in fields(kind)
        ]

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        whole = dict(given)
        made = {name: kind(**{f.name: given.pop(f.name) for f in fields(kind)}) for name, kind in groups.items()}
        if whole.get("to_file") is not None:
            (options,) = made.values()
            save_options(whole["to_file"], [g for p in parameters if (g := _given(p, whole[p.name]))], options)
        return command(**given, **made)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run  # type: ignore[return-value]


def _given(parameter: inspect.Parameter, value: Any) -> Given | None:
    """An option with its value; None if the parameter is no option."""
    for info in get_args(parameter.annotation)[1:]:
        if isinstance(info, OptionInfo) and not isinstance(info, ArgumentInfo):
            return Given(parameter.name, value, info.help or "")
    return None
