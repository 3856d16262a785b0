from __future__ import annotations

import csv
import json
import re
from pathlib import Path

from tests.cli.run import run, sentence


def test_a_table_a_report_and_json(scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["compare", scenes, "--runs", "2", "--train-ratio", "0.5", "--methods", "colour,gist", "--out", out]
    done = run(*command, "--json", tmp_path / "found.json")
    assert "Colour histogram" in done.stdout and "GIST" in done.stdout
    found = json.loads((tmp_path / "found.json").read_text())["methods"]
    assert {row["name"] for row in found} == {"colour", "gist"} and all(len(row["runs"]) == 2 for row in found)
    assert len(list(csv.DictReader((out / "methods.csv").open()))) == 2
    runs = [(row["method"], row["split"]) for row in csv.DictReader((out / "runs.csv").open())]
    assert runs == [("colour", "0"), ("colour", "1"), ("gist", "0"), ("gist", "1")]
    page = (out / "report.html").read_text()
    assert "All methods" in page and "://" not in page.replace("http://www.w3.org", "")
    assert (out / "cost.png").stat().st_size > 10_000
    before = (out / "runs" / "gist-00.json").stat().st_mtime_ns
    run(*command)
    assert (out / "runs" / "gist-00.json").stat().st_mtime_ns == before


def test_the_documented_method_of_ones_own(scenes: Path, tmp_path: Path) -> None:
    guide = Path(__file__).parents[2] / "docs" / "compare.md"
    (example,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    file = tmp_path / "most_frequent.py"
    file.write_text(example)
    command = ["compare", scenes, "--runs", "1", "--train-ratio", "0.5", "--out", tmp_path / "out", "--add", file]
    done = run(*command, "--methods", "most-frequent", "--json", "-")
    (row,) = json.loads(done.stdout)["methods"]
    assert row["mean"] == 25 and row["parameters"] == 1  # one of four classes of equal size


def test_the_list_says_what_each_method_is() -> None:
    done = run("compare", "--list")
    assert "handcrafted" in done.stdout and "Lazebnik" in done.stdout and "mgcap-compact" in done.stdout


def test_bad_requests(scenes: Path, tmp_path: Path) -> None:
    assert "give a folder" in sentence("compare")
    assert "no method 'magic'" in sentence("compare", scenes, "--methods", "magic", "--out", tmp_path)
    assert "there is no file" in sentence("compare", scenes, "--add", tmp_path / "none.py", "--out", tmp_path)
    assert "there is no folder" in sentence("compare", tmp_path / "none", "--out", tmp_path)
