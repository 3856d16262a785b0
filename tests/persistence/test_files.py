from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from mgcap.persistence.files import cache_dir, write_json, write_rows


@pytest.fixture(scope="session")
def cache_of_the_session() -> Path:
    """Where fixtures that are made before a test keep things."""
    return cache_dir()


def test_no_fixture_writes_to_the_users_cache(cache_of_the_session: Path) -> None:
    assert Path.home() / ".cache" not in cache_of_the_session.parents
    assert cache_dir() != cache_of_the_session  # a test has one of its own


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_json(tmp_path / "new" / "a.json", {"a": [1, None]})
    assert json.loads((tmp_path / "new" / "a.json").read_text()) == {"a": [1, None]}
    write_rows(tmp_path / "a.csv", [{"x": 1, "y": "a,b"}, {"x": 2, "y": ""}])
    with (tmp_path / "a.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [{"x": "1", "y": "a,b"}, {"x": "2", "y": ""}]
    write_rows(tmp_path / "none.csv", [])
    assert (tmp_path / "none.csv").read_text().strip() == ""


def test_a_failure_keeps_what_was_there(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", 1)
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", object())
    assert (tmp_path / "a.json").read_text() == "1\n" and len(list(tmp_path.iterdir())) == 1
