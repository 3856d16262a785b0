"""What every command shares: words on standard error, and errors in one sentence."""

from __future__ import annotations

import errno
import functools
import inspect
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

from rich.console import Console
from typer.core import TyperCommand

from mgcap.descriptions import FINETUNE, MODEL, config_sentence
from mgcap.errors import DataError, MgcapError
from mgcap.progress_bars import bars as bars
from mgcap.progress_bars import words as words

if TYPE_CHECKING:
    pass

F = TypeVar("F", bound=Callable[..., Any])

data = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 1000)


def quiet_unless_first() -> None:
    """Of several processes only the first reports; errors are for all."""
    bars.shown = os.environ.get("RANK", "0") == "0"


def fail(sentence: str, code: int = 1) -> NoReturn:
    """Print one sentence on standard error and leave."""
    words.print(f"[bold red]error:[/] {_escaped(sentence)}")
    raise SystemExit(code)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


#: A parameter in a sentence of the library: in backticks, with a value or without, or before what is wrong with it.
_PARAMETER = re.compile(r"`([\w.]+)(?:=([^`\s]*))?`|(?:^|(?<=; ))(\w+)(?=: )")
#: Functions that are options here.
_FUNCTIONS = {"mgcap.backbones.add_file": "add"}


def in_flags(sentence: str, own: Collection[str]) -> str:
    """A sentence of the library that speaks of a command's flags, where the library speaks of parameters.

    Args:
        sentence: As `tile` takes metres, see :mod:`mgcap.errors`.
        own: Parameters of the command that runs; others are left as they are.
    """

    def flag(found: re.Match[str]) -> str:
        name = _FUNCTIONS.get(found[1], found[1] or found[3])
        if name in own:
            return f"--{name.replace('_', '-')}" + (f" {found[2]}" if found[2] else "")
        return f"--set {name}={found[2]}" if found[2] and name in MODEL and "settings" in own else found[0]

    return _PARAMETER.sub(flag, sentence)


def show_table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print rows under a header on standard output."""
    from rich.table import Column, Table

    table = Table(*(Column(name, overflow="fold") for name in columns), box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_escaped(str(cell)) for cell in row))
    if data.is_terminal:
        data.print(table)
        return
    with data.capture() as printed:
        data.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def guarded(command: F) -> F:
    """Turn errors into one sentence and an exit code; ``--debug`` anywhere on the line lets them through."""
    own = frozenset(inspect.signature(command).parameters)

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        def terminate(number: int, frame: FrameType | None) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, terminate)
        shown, warnings.showwarning = warnings.showwarning, _show_warning
        wording, bars.wording = bars.wording, functools.partial(in_flags, own=own)
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt as stop:
            if isinstance(stop.__context__, MgcapError):  # a signal on top of an error, which says more
                fail(in_flags(str(stop.__context__), own))
            words.print("Interrupted. Files that were complete are kept; run the same command again to resume.")
            raise SystemExit(130) from None
        except BrokenPipeError:
            sys.stderr.close()
            raise SystemExit(141) from None
        except Exception as error:
            if _debug:
                raise
            fail(in_flags(_sentence(error), own))
        finally:
            signal.signal(signal.SIGTERM, before)
            warnings.showwarning, bars.wording = shown, wording

    return run  # type: ignore[return-value]


_show_plainly = warnings.showwarning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own warnings as a sentence; Pillow's doubts about a file not at all, for it is read or its error is told."""
    if category.__module__.startswith("mgcap."):
        bars.say(str(message))
    elif Path(filename).parent.name != "PIL":
        _show_plainly(message, category, filename, lineno, file, line)


_debug = False


def set_debug(on: bool) -> None:
    """Let tracebacks through."""
    global _debug
    _debug = on


def _sentence(error: Exception) -> str:
    if type(error).__name__ == "ValidationError" and hasattr(error, "errors"):
        return config_sentence(error)  # type: ignore[arg-type]
    if isinstance(error, MgcapError):
        return str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return f"the disk is full ({error.filename or 'while writing'}); free some space and run the command again"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'a file'}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "there is not enough memory for this configuration"
    return f"{type(error).__name__}: {error} (unexpected; add --debug for the traceback)"


def check_writable(path: Path) -> Path:
    """Fail now rather than after the work, if a file cannot be written."""
    path = path.expanduser()
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a file name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        probe = path.parent / f".{path.name}.probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}") from error
    return path


class Command(TyperCommand):
    """A command that says where a value without a flag of its own is given, as ``--tune epochs=`` for ``--epochs``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, and add that to the error of an unknown option."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            name = str(getattr(error, "option_name", "")).removeprefix("--").replace("-", "_")
            flag = "--tune" if name in FINETUNE else "--set" if name in MODEL else ""
            if flag and hasattr(error, "message"):
                error.message = f"There is no option --{name.replace('_', '-')}; give {flag} {name}=VALUE."
                error.possibilities = None  # type: ignore[attr-defined]
            raise
