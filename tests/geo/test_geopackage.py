from __future__ import annotations

import datetime
import sqlite3
import struct
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyogrio
import pytest
import rasterio
import shapely
from rasterio.transform import Affine

from mgcap.errors import RasterError
from mgcap.geo.cells import Place
from mgcap.geo.geopackage import Layer, check_replaced, write_geopackage
from mgcap.geo.grid import Grid
from mgcap.geo.polygons import write_polygons
from mgcap.geo.votes import ClassMap
from mgcap.report.colours import class_colours

GRID = Grid(150, 100, 32, 32)
LABELS = ["storagetanks", 'a <b> & "c"', "unknown"]
NAMES = ["storage tanks", 'a <b> & "c"', "unknown"]
SLD, OGC = "{http://www.opengis.net/sld}", "{http://www.opengis.net/ogc}"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    shape = (GRID.rows, GRID.columns)
    classes = (np.arange(20) % 3).reshape(shape).astype(np.int16)
    found = ClassMap(np.full((*shape, 2), 0.5, np.float32), classes, np.zeros(shape, np.float32))
    changed = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    place = Place(Affine(0.5, 0, 500_000, 0, -0.5, 5_600_000), rasterio.CRS.from_epsg(25832), changed)
    write_polygons(tmp_path / "map.gpkg", found, GRID, place, LABELS, dissolve=True)
    return tmp_path / "map.gpkg"


def test_older_programs_know_the_version(package: Path) -> None:
    raw = package.read_bytes()
    application, version = struct.unpack(">4s", raw[68:72])[0], struct.unpack(">I", raw[60:64])[0]
    assert application == b"GPKG"
    assert 10200 <= version <= 10300  # GDAL 3.6 warns of 10400


def test_both_layers_are_there(package: Path) -> None:
    assert pyogrio.list_layers(package)[:, 0].tolist()[:2] == ["scenes", "classes"]
    meta, _, _, fields = pyogrio.raw.read(package, layer="scenes")
    cells = dict(zip(meta["fields"], fields, strict=True))
    assert cells["class"][:3].tolist() == NAMES
    assert cells["label"][:3].tolist() == LABELS
    assert np.isnan(cells["probability"][2]) and cells["probability"][0] == 0.5
    assert cells["top3"][2] == 'storage tanks 0.500, a <b> & "c" 0.500'
    meta, _, _, fields = pyogrio.raw.read(package, layer="classes")
    assert meta["fields"].tolist() == ["class", "label", "cells", "area_m2", "probability", "colour"]
    assert meta["geometry_type"] == "Polygon"


def _styles(package: Path) -> dict[str, tuple[str, str]]:
    with sqlite3.connect(package) as database:
        rows = database.execute("SELECT f_table_name, styleQML, styleSLD, useAsDefault FROM layer_styles").fetchall()
        listed = {name for (name,) in database.execute("SELECT table_name FROM gpkg_contents")}
    assert listed == {"scenes", "classes", "layer_styles"}
    assert [row[3] for row in rows] == [1, 1]
    return {name: (qml, sld) for name, qml, sld, _ in rows}


@pytest.mark.parametrize(("layer", "beside"), [("scenes", "map"), ("classes", "map.classes")])
def test_styles_have_a_rule_for_each_class(package: Path, layer: str, beside: str) -> None:
    qml, sld = _styles(package)[layer]
    assert package.with_name(f"{beside}.qml").read_text() == qml
    assert package.with_name(f"{beside}.sld").read_text() == sld
    categories = list(ElementTree.fromstring(qml).iter("category"))
    assert [(c.attrib["value"], c.attrib["label"]) for c in categories] == list(zip(NAMES, NAMES, strict=True))
    fills = [o.attrib["value"] for o in ElementTree.fromstring(qml).iter("Option") if o.attrib.get("name") == "color"]
    colours = class_colours(LABELS)
    assert fills == [",".join(str(int(c[i : i + 2], 16)) for i in (1, 3, 5)) + ",255" for c in colours]
    root = ElementTree.fromstring(sld.encode())
    assert (root.tag, root.attrib["version"]) == (f"{SLD}StyledLayerDescriptor", "1.0.0")
    assert root.findtext(f"{SLD}NamedLayer/{SLD}Name") == layer
    rules = list(root.iter(f"{SLD}Rule"))
    for rule, name, colour in zip(rules, NAMES, colours, strict=True):
        assert [child.tag for child in rule] == [
            f"{SLD}Name", f"{SLD}Title", f"{OGC}Filter", f"{SLD}PolygonSymbolizer",
        ]  # fmt: skip
        (equal,) = rule.iter(f"{OGC}PropertyIsEqualTo")
        assert [(child.tag, child.text) for child in equal] == [
            (f"{OGC}PropertyName", "class"),
            (f"{OGC}Literal", name),
        ]
        values = {own.attrib["name"]: own.text for own in rule.iter(f"{SLD}CssParameter")}
        assert values["fill"] == colour
        assert 0 < float(values["fill-opacity"] or 0) < 1


def test_the_styles_of_the_layers_differ(package: Path) -> None:
    styles: Any = _styles(package)
    assert styles["scenes"][0] != styles["classes"][0]


def test_only_files_of_the_same_kind_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "points.gpkg"
    check_replaced(path, "points", "class")  # there is none
    day = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

    def write(name: str, labels: list[str | None]) -> None:
        table = shapely.points([[1.0, 2.0], [3.0, 4.0]]), {"class": np.array(labels, object)}
        write_geopackage(path, [Layer(name, [table], kind="Point")], None, day)

    write("points", [None, ""])
    check_replaced(path, "points", "class")
    with pytest.raises(RasterError, match=r"points\.gpkg is there already, and is something else; give `out` another"):
        check_replaced(path, "hits")
    write("points", [None, "forest"])
    check_replaced(path, "points")
    with pytest.raises(RasterError, match="the field class is filled in at 1 places; give `out` another name"):
        check_replaced(path, "points", "class")
    path.write_text("notes")
    with pytest.raises(RasterError, match="is something else"):
        check_replaced(path, "points")
    assert path.read_text() == "notes"
