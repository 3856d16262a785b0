"""Headers of model files of earlier versions, brought up to this one step by step.

A field that gets another name, or a new one, is an upgrade here and a golden file in the tests; but for one that may be
missing, and that earlier versions can do without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Header = dict[str, Any]


def _from_1(header: Header) -> Header:
    """Labels were names, whatever they had been before."""
    return {**header, "label_kind": "str"}


def _from_2(header: Header) -> Header:
    """There was no sample of what the model was trained on."""
    return header


def _from_3(header: Header) -> Header:
    """There were no examples."""
    return header


#: From each version to the next.
UPGRADES: dict[int, Callable[[Header], Header]] = {1: _from_1, 2: _from_2, 3: _from_3}


def upgraded(header: Header) -> Header:
    """A header of any known version as one of the newest."""
    while (version := header.get("format_version")) in UPGRADES:
        header = {**UPGRADES[version](header), "format_version": version + 1}
    return header
