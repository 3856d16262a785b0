from __future__ import annotations

import pytest

from mgcap.names import human_name, human_names
from mgcap.persistence.shipped import DEFAULT_MODEL


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("mediumresidential", "medium residential"),
        ("storagetanks", "storage tanks"),
        ("mobilehomepark", "mobile home park"),
        ("BaseballField", "baseball field"),
        ("BareLand", "bare land"),
        ("StorageTanks", "storage tanks"),
        ("Airport", "airport"),
        ("ground_track_field", "ground track field"),
        ("thermal_power_station", "thermal power station"),
        ("golf-course", "golf course"),
        ("trailer_park", "trailer park"),
        ("AnnualCrop", "annual crop"),
        ("SARShip", "SAR ship"),
        ("LCZ_1", "LCZ 1"),
        ("1-2", "1-2"),
        ("-1", "-1"),
        ("7", "7"),
        ("Laubwald", "Laubwald"),
        ("Semi-natural grassland", "Semi-natural grassland"),
        ("été_sec", "été sec"),
        ("a\x07b", "a b"),
        ("_", "_"),
        ("", ""),
        (3, "3"),
    ],
)
def test_names_are_as_people_write_them(label: object, name: str) -> None:
    assert human_name(label) == name
    assert human_name(name) == name


def test_no_class_of_the_shipped_model_is_left_in_one_word() -> None:
    from mgcap.classifier import SceneClassifier

    labels = SceneClassifier.load(DEFAULT_MODEL, engine="torch").classes_.tolist()
    joined = {"agricultural", "airplane", "beach", "buildings", "chaparral", "forest", "freeway", "harbor"}
    joined |= {"intersection", "overpass", "river", "runway"}
    names = human_names(labels)
    assert {name for name in names if " " not in name} == joined
    assert [name.replace(" ", "") for name in names] == labels


def test_classes_stay_apart() -> None:
    assert human_names(["golf_course", "golfcourse", "sea_ice"]) == ("golf_course", "golfcourse", "sea ice")
