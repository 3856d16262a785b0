from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mgcap.report.colours import class_colours, rgb

names = st.lists(st.one_of(st.text(), st.sampled_from(["river", "lake", "sea", "forest", "water2"])), max_size=60)


@given(names)
def test_all_different(classes: list[str]) -> None:
    colours = class_colours(classes)
    assert len(set(colours)) == len(classes)
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours)


def test_what_people_expect() -> None:
    river, forest, park = (rgb(colour) for colour in class_colours(["river", "forest", "mobilehomepark"]))
    assert river[2] == max(river)
    assert forest[1] == max(forest)
    assert park[1] == min(park)  # not the green of parks
