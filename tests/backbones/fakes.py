"""Backbones whose published weights are others, for a test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mgcap.backbones import BACKBONES
from mgcap.backbones.record import Published, Reader
from mgcap.persistence.downloads import Source


def publish(
    monkeypatch: pytest.MonkeyPatch, name: str, sha256: str, sources: Sequence[tuple[Source, Reader]] = ()
) -> None:
    """Let a backbone have tensors of this hash, to be had from these sources."""
    monkeypatch.setitem(BACKBONES, name, replace(BACKBONES[name], weights=Published("none", tuple(sources), sha256)))
