"""What every command shares: words on standard error, and errors in one sentence."""

from __future__ import annotations

import errno
import functools
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

from rich.console import Console

from mgcap.errors import DataError, MgcapError
from mgcap.progress_bars import bars as bars
from mgcap.progress_bars import words as words

if TYPE_CHECKING:
    from pydantic import ValidationError

F = TypeVar("F", bound=Callable[..., Any])

data = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 200)


def quiet_unless_first() -> None:
    """Of several processes only the first reports; errors are for all."""
    bars.shown = os.environ.get("RANK", "0") == "0"


def fail(sentence: str, code: int = 1) -> NoReturn:
    """Print one sentence on standard error and leave."""
    words.print(f"[bold red]error:[/] {_escaped(sentence)}")
    raise SystemExit(code)


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")


def config_sentence(error: ValidationError, known: Iterable[str] | None = None) -> str:
    """What is wrong with a configuration, or with other values whose names are ``known``, in one sentence."""
    from mgcap.config import MGCAPConfig

    kind = "a configuration value" if known is None else "an option"
    names = ", ".join(MGCAPConfig.model_fields if known is None else known)
    parts = []
    for problem in error.errors():
        where = ".".join(str(part) for part in problem["loc"])
        message = str(problem["msg"]).removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            parts.append(f"'{where}' is not {kind}; there are {names}")
        else:
            parts.append(f"{where}: {message} (given: {problem['input']!r})" if where else message)
    return "; ".join(parts)


def guarded(command: F) -> F:
    """Turn errors into one sentence and an exit code; ``--debug`` anywhere on the line lets them through."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        def terminate(number: int, frame: FrameType | None) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, terminate)
        shown, warnings.showwarning = warnings.showwarning, _show_warning
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt as stop:
            if isinstance(stop.__context__, MgcapError):  # a signal on top of an error, which says more
                fail(str(stop.__context__))
            words.print("Interrupted. Files that were complete are kept; run the same command again to go on.")
            raise SystemExit(130) from None
        except BrokenPipeError:
            sys.stderr.close()
            raise SystemExit(141) from None
        except Exception as error:
            if _debug:
                raise
            fail(_sentence(error))
        finally:
            signal.signal(signal.SIGTERM, before)
            warnings.showwarning = shown

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


def parse_settings(settings: list[str]) -> dict[str, str]:
    """``NAME=VALUE`` pairs to a dictionary."""
    pairs = {}
    for item in settings:
        name, equals, value = item.partition("=")
        if not equals:
            raise DataError(f"--set takes NAME=VALUE, not '{item}'")
        pairs[name] = value
    return pairs
