from __future__ import annotations

from pathlib import Path

import pytest

from mgcap.errors import BundleError
from mgcap.persistence import bundle
from mgcap.persistence.shipped import DEFAULT_MODEL, find_model, model_card, shipped_models


def test_the_shipped_model_is_whole_and_says_what_it_is() -> None:
    path = find_model(DEFAULT_MODEL)
    assert path == shipped_models()["ucmerced"]
    assert path.stat().st_size < 2_500_000  # the head and axes, and a sample of less than 1 MB
    found = bundle.read_bundle(path)
    assert len(found.classes) == 21
    assert found.imagery["resolution"] == 0.3
    assert found.backbone["stock"] and found.backbone["name"] == "resnet50-v1"
    assert found.provenance["images"] == 2100
    card = model_card(path)
    assert card is not None
    for word in ("Data", "Licence", "Limits", "How good"):
        assert f"**{word}**" in card


def test_a_file_of_that_name_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ucmerced").write_text("mine")
    assert find_model("ucmerced") == Path("ucmerced")
    assert find_model("other.mgcap") == Path("other.mgcap")
    assert model_card(Path("ucmerced")) is None


def test_a_name_that_was_perhaps_meant() -> None:
    with pytest.raises(BundleError, match=r"there is no model file ucmercd .did you mean 'ucmerced'"):
        find_model("ucmercd")
    assert find_model("nothing/like/it.mgcap") == Path("nothing/like/it.mgcap")
