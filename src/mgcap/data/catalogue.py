"""Public scene datasets: classes, counts, licences and where to get them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Dataset:
    """One public dataset.

    Attributes:
        key: Short name.
        title: Full name.
        counts: Images of each class, by the class's folder name as published.
        exact: Whether the counts must match exactly; otherwise they are the least to expect.
        total: Images in all.
        pixels: Usual size of an image.
        resolution: Ground resolution in metres.
        licence: What its publishers say of its use.
        home: Where to get it.
        layout: The path of a class folder as people unzip it.
        ratios: Training ratios that papers report.
    """

    key: str
    title: str
    counts: dict[str, int]
    total: int
    pixels: str
    resolution: str
    licence: str
    home: str
    layout: str
    ratios: tuple[float, ...]
    exact: bool = True

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names as published."""
        return tuple(self.counts)


def _same(names: str, count: int) -> dict[str, int]:
    return dict.fromkeys(names.split(), count)


_AID = (
    "Airport:360 BareLand:310 BaseballField:220 Beach:400 Bridge:360 Center:260 Church:240 Commercial:350 "
    "DenseResidential:410 Desert:300 Farmland:370 Forest:250 Industrial:390 Meadow:280 MediumResidential:290 "
    "Mountain:340 Park:350 Parking:390 Playground:370 Pond:420 Port:380 RailwayStation:260 Resort:290 River:410 "
    "School:300 SparseResidential:300 Square:330 Stadium:290 StorageTanks:360 Viaduct:420"
)
_EUROSAT = (
    "AnnualCrop:3000 Forest:3000 HerbaceousVegetation:3000 Highway:2500 Industrial:2500 Pasture:2000 "
    "PermanentCrop:2500 Residential:3000 River:2500 SeaLake:3000"
)
_GOOGLE = "Google Earth imagery; for research, not for sale"


def _counted(text: str) -> dict[str, int]:
    return {name: int(count) for name, count in (pair.split(":") for pair in text.split())}


#: Every catalogued dataset, by key.
CATALOGUE: dict[str, Dataset] = {
    dataset.key: dataset
    for dataset in (
        Dataset(
            "ucmerced",
            "UC Merced Land Use",
            _same(
                "agricultural airplane baseballdiamond beach buildings chaparral denseresidential forest freeway "
                "golfcourse harbor intersection mediumresidential mobilehomepark overpass parkinglot river runway "
                "sparseresidential storagetanks tenniscourt",
                100,
            ),
            2100,
            "256 x 256",
            "0.3",
            "USGS imagery, public domain",
            "http://weegee.vision.ucmerced.edu/datasets/landuse.html",
            "UCMerced_LandUse/Images/agricultural/agricultural00.tif",
            (0.5, 0.8),
        ),
        Dataset(
            "aid",
            "AID (Aerial Image Dataset)",
            _counted(_AID),
            10000,
            "600 x 600",
            "0.5-8",
            _GOOGLE,
            "https://captain-whu.github.io/AID/",
            "AID/Airport/airport_1.jpg",
            (0.2, 0.5),
        ),
        Dataset(
            "nwpu-resisc45",
            "NWPU-RESISC45",
            _same(
                "airplane airport baseball_diamond basketball_court beach bridge chaparral church circular_farmland "
                "cloud commercial_area dense_residential desert forest freeway golf_course ground_track_field harbor "
                "industrial_area intersection island lake meadow medium_residential mobile_home_park mountain overpass "
                "palace parking_lot railway railway_station rectangular_farmland river roundabout runway sea_ice ship "
                "snowberg sparse_residential stadium storage_tank tennis_court terrace thermal_power_station wetland",
                700,
            ),
            31500,
            "256 x 256",
            "0.2-30",
            _GOOGLE,
            "https://gcheng-nwpu.github.io/#Datasets",
            "NWPU-RESISC45/airplane/airplane_001.jpg",
            (0.1, 0.2),
        ),
        Dataset(
            "rsscn7",
            "RSSCN7",
            _same("aGrass bField cIndustry dRiverLake eForest fResident gParking", 400),
            2800,
            "400 x 400",
            "varies",
            _GOOGLE,
            "https://sites.google.com/site/qinzoucn/documents",
            "RSSCN7/aGrass/a001.jpg",
            (0.2, 0.5),
        ),
        Dataset(
            "eurosat",
            "EuroSAT (RGB)",
            _counted(_EUROSAT),
            27000,
            "64 x 64",
            "10",
            "MIT; Copernicus Sentinel data",
            "https://github.com/phelber/EuroSAT",
            "EuroSAT/2750/AnnualCrop/AnnualCrop_1.jpg",
            (0.1, 0.8),
        ),
        Dataset(
            "whu-rs19",
            "WHU-RS19",
            _same(
                "Airport Beach Bridge Commercial Desert Farmland footballField Forest Industrial Meadow Mountain Park "
                "Parking Pond Port railwayStation Residential River Viaduct",
                50,
            ),
            1005,
            "600 x 600",
            "0.5",
            _GOOGLE,
            "https://captain-whu.github.io/BED4RS/",
            "WHU-RS19/Airport/airport_01.jpg",
            (0.4, 0.6),
            exact=False,
        ),
        Dataset(
            "optimal-31",
            "OPTIMAL-31",
            _same(
                "airplane airport baseball_diamond basketball_court beach bridge chaparral church circular_farmland "
                "commercial_area dense_residential desert forest freeway golf_course ground_track_field harbor "
                "industrial_area intersection island lake meadow medium_residential mobile_home_park mountain overpass "
                "parking_lot railway rectangular_farmland roundabout runway",
                60,
            ),
            1860,
            "256 x 256",
            "varies",
            _GOOGLE,
            "https://crabwq.github.io/",
            "OPTIMAL-31/Images/airplane/airplane_01.jpg",
            (0.8,),
        ),
        Dataset(
            "patternnet",
            "PatternNet",
            _same(
                "airplane baseball_field basketball_court beach bridge cemetery chaparral christmas_tree_farm "
                "closed_road coastal_mansion crosswalk dense_residential ferry_terminal football_field forest freeway "
                "golf_course harbor intersection mobile_home_park nursing_home oil_gas_field oil_well overpass "
                "parking_lot parking_space railway river runway runway_marking shipping_yard solar_panel "
                "sparse_residential storage_tank swimming_pool tennis_court transformer_station "
                "wastewater_treatment_plant",
                800,
            ),
            30400,
            "256 x 256",
            "0.06-4.7",
            _GOOGLE,
            "https://sites.google.com/view/zhouwx/dataset",
            "PatternNet/images/airplane/airplane001.jpg",
            (0.2, 0.8),
        ),
    )
}


def plain_name(name: str) -> str:
    """A class name without case, blanks or punctuation, so that ``Dense Residential`` is ``dense_residential``."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def recognise(classes: Iterable[str]) -> Dataset | None:
    """The catalogued dataset whose classes these are, or nearly (9 in 10 shared)."""
    given = {plain_name(name) for name in classes}

    def overlap(dataset: Dataset) -> float:
        own = {plain_name(name) for name in dataset.classes}
        return len(own & given) / len(own | given)

    best = max(CATALOGUE.values(), key=overlap)
    return best if overlap(best) >= 0.9 else None


def differences(dataset: Dataset, counts: dict[str, int]) -> list[str]:
    """Sentences on where a folder's classes and counts differ from the published ones."""
    found = {plain_name(name): count for name, count in counts.items()}
    expected = {plain_name(name): (name, count) for name, count in dataset.counts.items()}
    sentences = []
    for plain, (name, count) in expected.items():
        if plain not in found:
            sentences.append(f"class {name} is missing")
        elif found[plain] != count if dataset.exact else found[plain] < count:
            wanted = f"{count}" if dataset.exact else f"at least {count}"
            sentences.append(f"class {name} has {found[plain]} images instead of {wanted}")
    sentences += [f"class {name} is not part of it" for name in counts if plain_name(name) not in expected]
    return sentences
