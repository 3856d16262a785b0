"""What the fuzzer found once stays mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.targets import TARGETS, good_bundle, good_chunk, good_request

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*-*"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_a_file_that_did_harm_once(path: Path) -> None:
    TARGETS[path.name.partition("-")[0]](path.read_bytes())


@pytest.mark.parametrize(
    ("target", "make"), [("bundle", good_bundle), ("chunk", good_chunk), ("request", good_request)]
)
def test_targets_take_good_files(target: str, make: object) -> None:
    TARGETS[target](make())  # type: ignore[operator]
