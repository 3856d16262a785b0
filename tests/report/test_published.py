from __future__ import annotations

from mgcap.data.catalogue import CATALOGUE
from mgcap.report.published import published_rows, published_table


def test_the_papers_own_rows() -> None:
    """As printed in its tables."""
    found = {row["method"]: (row["accuracy"], row["std"]) for row in published_rows("ucmerced", 0.8)}
    assert found["MG-CAP Sqrt-E with VGG-D"] == ("99.0", "0.10")
    assert found["RTN with VGG-D"] == ("98.96", "")
    assert len(found) == 17
    assert len(published_rows("nwpu-resisc45", 0.1)) == 26 and len(published_rows("aid", 0.5)) == 13
    assert {row["dataset"] for r in (0.1, 0.2, 0.5, 0.8) for k in CATALOGUE for row in published_rows(k, r)} <= set(
        CATALOGUE
    )


def test_our_rows_stand_among_them() -> None:
    classes = CATALOGUE["ucmerced"].classes
    table = published_table(classes, 0.801, [{"method": "ours", "mean": 98.5, "std": None}])
    assert table is not None
    values = [float(row[1].split()[0]) for row in table["rows"]]
    assert values == sorted(values)
    (place,) = table["ours"]
    assert table["rows"][place] == ("ours", "98.50", "this run")


def test_nothing_where_nothing_was_published() -> None:
    assert published_table(["a", "b"], 0.8, []) is None
    assert published_table(CATALOGUE["ucmerced"].classes, 0.3, []) is None
