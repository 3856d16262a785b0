"""Errors that are meant to be read by people: one sentence each, saying what to do.

Parameters stand in backticks, with a value if need be, as `tile` or `engine=torch`, so that the command line can speak
of its flags instead (:func:`mgcap.cli.console.in_flags`).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable
from itertools import islice
from pathlib import Path

#: Names of a folder that are looked at to find one that may have been meant.
NEIGHBOURS = 10_000


class MgcapError(Exception):
    """Base of every error the package raises on purpose."""


class DataError(MgcapError):
    """A folder, split file or set of labels cannot be used."""


class ValuesError(MgcapError, ValueError):
    """A parameter has an impossible value."""


class ParameterError(MgcapError, TypeError):
    """There is no parameter of this name."""


class ImageError(DataError):
    """One image cannot be read."""


class RasterError(DataError):
    """A raster cannot be mapped."""


class UntrustedRasterError(RasterError):
    """A raster that is opened with ``allow_vrt`` only; its reason, and what ``allow_vrt`` does."""

    def __init__(
        self,
        reason: str,
        why: str = ": it could read other files or use the network; give `allow_vrt` if you trust it",
    ) -> None:
        super().__init__(reason, why)

    def __str__(self) -> str:
        return "".join(self.args)


class WeightsError(MgcapError):
    """Pretrained weights cannot be had, or are not what they should be."""


class BundleError(MgcapError):
    """A model file is truncated, tampered with, too new or not ours."""


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """`` (did you mean 'vgg16'?)`` for a word that is near to a known one, else nothing; to be put behind the word."""
    names = {str(name).lower(): str(name) for name in known}
    close = difflib.get_close_matches(str(word).lower(), names, n=1)
    return f" (did you mean '{names[close[0]]}'?)" if close else ""


def check_parameters(what: str, given: Iterable[str], known: Collection[str]) -> None:
    """See that a function or class has parameters of these names.

    Raises:
        ParameterError: If it has not.
    """
    for name in given:
        if name not in known:
            raise ParameterError(f"{what} has no parameter '{name}'{did_you_mean(name, known)}")


def missing(kind: str, path: str | Path) -> str:
    """That there is no file (or folder, ...) of this name, with the near name in the same folder, if there is one."""
    path = Path(path)
    try:
        with os.scandir(path.parent) as entries:
            beside = [entry.name for entry in islice(entries, NEIGHBOURS)]
    except OSError:
        beside = []
    return f"there is no {kind} {path}{did_you_mean(path.name, beside)}"


def unknown_class(name: str, known: Iterable[str]) -> DataError:
    """The error of a class that a model has not learnt."""
    names = list(known)
    hint = did_you_mean(name, names)
    return DataError(f"the model does not know the class '{name}'{hint}; it knows {', '.join(names)}")
