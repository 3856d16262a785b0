from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation
from PIL import Image

from mgcap.report.charts import cost_chart, new_figure, place_labels


def test_names_of_points_that_lie_close_together_do_not_cover_each_other() -> None:
    figure = new_figure(6, 4)
    axes = figure.subplots()
    places = [(1.0, 1.0), (1.02, 1.0), (1.0, 1.03), (1.03, 1.02)]
    axes.plot(*zip(*places, strict=True), "o")
    axes.set(xlim=(0, 2), ylim=(0, 2))
    place_labels(axes, [(f"method-{k}", place, "black") for k, place in enumerate(places)])
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    boxes = [child.get_window_extent(renderer) for child in axes.get_children() if isinstance(child, Annotation)]
    assert len(boxes) == 4
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_accuracies_from_none_to_all_have_a_place(tmp_path: Path) -> None:
    rows = [
        {"name": f"m{k}", "family": "deep" if k else "handcrafted", "mean": mean, "std": std, "predict_ms": 10.0**k}
        for k, (mean, std) in enumerate([(0.0, None), (50.0, 3.0), (99.0, 2.0), (100.0, 0.0)])
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cost_chart(rows, tmp_path / "cost.png")
    assert Image.open(tmp_path / "cost.png").size == (1500, 975)


@pytest.mark.parametrize("time", [0.03682785203594325, 0.0005954816432443635, 7.0])
def test_a_single_method_has_a_chart(time: float, tmp_path: Path) -> None:
    cost_chart([{"name": "m", "family": "deep", "mean": 25.0, "std": None, "predict_ms": time}], tmp_path / "cost.png")
    assert Image.open(tmp_path / "cost.png").size == (1500, 975)
