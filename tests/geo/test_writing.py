from __future__ import annotations

import errno
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pyogrio.errors import FeatureError

from mgcap.errors import RasterError
from mgcap.geo.writing import FULL, writing


@pytest.mark.parametrize("error", [FeatureError("no such table"), sqlite3.OperationalError("x"), RasterError("x")])
def test_a_full_disk_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(FULL, FULL, FULL - 1))
    with pytest.raises(OSError, match="No space left") as caught, writing(tmp_path / "map.gpkg"):
        raise error
    assert caught.value.errno == errno.ENOSPC and caught.value.__cause__ is error


def test_other_errors_are_one_sentence_or_as_they_were(tmp_path: Path) -> None:
    words = r"map\.gpkg and the files beside it cannot be written: no such table$"
    with pytest.raises(RasterError, match=words), writing(tmp_path / "map.gpkg"):
        raise FeatureError("no such\n table")
    own: list[Any] = [RasterError("of our own"), KeyError("x"), PermissionError(13, "x", "y"), KeyboardInterrupt()]
    for error in own:
        with pytest.raises(type(error)) as caught, writing(tmp_path / "map.gpkg"):
            raise error
        assert caught.value is error
