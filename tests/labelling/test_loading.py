from __future__ import annotations

from pathlib import Path

import geopandas
from shapely.geometry import Point

from mgcap.labelling.about import add_raster
from mgcap.labelling.loading import load_labels
from mgcap.labelling.project import Project
from tests.labelling.projects import make_project, write_index, write_scene


def test_what_lies_on_one_of_several_rasters_is_not_left_out(tmp_path: Path) -> None:
    """The second raster lies east of the first; points: on each, on none, and one without a class."""
    folder = make_project(tmp_path).folder
    east = write_scene(tmp_path / "east.tif", west=510_000)
    add_raster(folder, east, write_index(tmp_path / "east.zarr", east))
    points = [Point(x, 5_600_000 - 52) for x in (500_052, 510_052, 600_052, 500_012)]
    table = geopandas.GeoDataFrame({"class": ["wood", "town", "wood", None]}, geometry=points, crs="EPSG:25832")
    table.to_file(tmp_path / "points.gpkg")
    found = load_labels(Project(folder), tmp_path / "points.gpkg", None, "anna")
    assert found.labels == 2
    assert found.left_out == {"points outside of the raster": 1, "features without a class": 1}
