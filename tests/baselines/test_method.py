from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mgcap.baselines.method import CHUNK, FAMILIES, About, Tools, find_methods, register, standard
from mgcap.errors import DataError, ImageError
from mgcap.persistence.cache import FeatureCache


class Mean:
    """The mean colour; counts what it was asked for."""

    def __init__(self) -> None:
        self.recipe = {"kind": "mean colour of a test"}
        self.seen = 0

    def rows(self, images: torch.Tensor) -> torch.Tensor:
        self.seen += len(images)
        return images.mean((-2, -1))


def test_descriptors_are_computed_once(tmp_path: Path) -> None:
    images = [torch.full((3, 20, 30), k / 50) for k in range(CHUNK + 5)]
    first = Mean()
    rows = Tools(FeatureCache(tmp_path)).describe(first, [*images, images[0]])
    assert first.seen == CHUNK + 5 and rows.shape == (CHUNK + 6, 3) and torch.equal(rows[0], rows[-1])
    torch.testing.assert_close(rows[10], torch.full((3,), 0.2), rtol=1e-3, atol=0)
    second = Mean()
    again = Tools(FeatureCache(tmp_path)).describe(second, images[::-1])
    assert second.seen == 0 and torch.equal(again, rows[:-1].flip(0))


def test_images_of_one_size() -> None:
    assert standard(torch.rand(3, 100, 300)).shape == (3, 256, 256)
    same = torch.rand(3, 256, 256)
    assert torch.equal(standard(same), same)
    with pytest.raises(ImageError, match="cannot be read"):
        Tools().describe(Mean(), [Path("none.png")])


def test_every_method_is_described() -> None:
    methods = find_methods()
    assert list(dict.fromkeys(about.family for about, _ in methods.values())) == list(FAMILIES)
    for name, (about, _) in methods.items():
        assert about.name == name and about.source and about.what and about.title
    wanted = {"colour", "lbp", "gist", "sift-bovw", "sift-spm", "sift-llc", "mscp-vgg16", "mscp-mra-alexnet"}
    wanted |= {f"{n}-{kind}" for n in ("alexnet", "googlenet", "vgg16") for kind in ("svm", "tuned-svm", "bovw")}
    wanted |= {"dcnn-vgg16", "rtn-vgg16", "mgcap-bilinear", "mgcap-log", "mgcap-sqrt", "mgcap-compact"}
    assert wanted | {"idccp-vgg16", "isqrt-cov", "gap-vgg16"} <= set(methods)


def test_a_file_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgcap.baselines import method

    monkeypatch.setattr(method, "METHODS", dict(find_methods()))
    good = tmp_path / "good.py"
    good.write_text(
        "from mgcap.baselines import About, register\n"
        "register(About('mine', 'My own', 'handcrafted', 'me', 'guesses'), lambda tools: None)\n"
    )
    assert find_methods([good])["mine"][0].title == "My own"
    assert "mine" in find_methods([good])  # twice is once
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    for name, words in (("none.py", "there is no file"), ("empty.py", "no method"), ("broken.py", "ZeroDivision")):
        with pytest.raises(DataError, match=words):
            find_methods([tmp_path / name])
    with pytest.raises(DataError, match="two methods"):
        register(About("mine", "Other", "handcrafted", "me", "guesses"), lambda tools: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(DataError, match="family"):
        register(About("other", "Other", "magic", "me", "guesses"), lambda tools: None)  # type: ignore[arg-type, return-value]
