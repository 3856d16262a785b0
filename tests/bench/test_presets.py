from __future__ import annotations

from mgcap.bench.presets import POINTS, configuration_of, milliseconds, shipped_curve


def test_the_shipped_curve_has_every_point_and_rises() -> None:
    curve = shipped_curve()
    assert [own.options for own in curve.points] == list(POINTS)
    assert all(50 < mean <= 100 and 0 < std < 10 for own in curve.points for mean, std in own.accuracy.values())
    best = {share: max(own.accuracy[share][0] for own in curve.points) for share in curve.points[0].accuracy}
    assert {share: curve.points[-1].accuracy[share][0] for share in best} == best


def test_a_point_is_what_is_typed_and_takes_time() -> None:
    assert configuration_of("--preset tiny --rotations 1").rotations == 1
    fast = configuration_of("--preset tiny --rotations 1").replace(size=64)
    assert 0 < milliseconds(fast) < 1000
