"""Styles of class maps, one colour per class and half transparent: QML for QGIS, SLD 1.0.0 for others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

from mgcap.names import human_names
from mgcap.persistence.files import atomic_path
from mgcap.report.colours import class_colours, rgb

#: How strongly classes cover what is below them.
OPACITY = 0.55


class Style(NamedTuple):
    """A style of a layer."""

    title: str
    qml: str
    sld: str


class Outline(NamedTuple):
    """Lines around polygons; millimetres in QGIS, pixels elsewhere."""

    grey: int
    opacity: float
    millimetres: float
    pixels: float


#: Of single cells, and of areas of one class.
THIN, STRONG = Outline(60, 0.35, 0.1, 0.3), Outline(40, 0.8, 0.3, 1.0)


def class_style(layer: str, title: str, classes: Sequence[str], outline: Outline = THIN) -> Style:
    """A style of a layer by its column ``class``.

    Args:
        layer: Name of the layer.
        title: Of the style.
        classes: Labels of the classes.
        outline: Lines around polygons.
    """
    colours = list(zip(human_names(classes), class_colours(classes), strict=True))
    return Style(title, _qml(colours, outline), _sld(layer, title, colours, outline))


def write_styles(path: Path, style: Style) -> list[Path]:
    """Write ``.qml`` and ``.sld`` beside a file of polygons, where QGIS and GeoServer look for them."""
    texts = {path.with_suffix(".qml"): style.qml, path.with_suffix(".sld"): style.sld}
    for file, text in texts.items():
        with atomic_path(file) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return list(texts)


def _qml(classes: Sequence[tuple[str, str]], outline: Outline) -> str:
    categories, symbols = [], []
    line = ",".join(map(str, (*(outline.grey,) * 3, round(255 * outline.opacity))))
    for number, (name, colour) in enumerate(classes):
        red, green, blue = rgb(colour)
        label = quoteattr(name)
        categories.append(f'<category render="true" symbol="{number}" value={label} label={label} type="string"/>')
        symbols.append(
            f'<symbol type="fill" name="{number}" alpha="{OPACITY}" force_rhr="0" clip_to_extent="1">'
            '<layer class="SimpleFill" pass="0" locked="0" enabled="1"><Option type="Map">'
            f'<Option type="QString" name="color" value="{red},{green},{blue},255"/>'
            f'<Option type="QString" name="outline_color" value="{line}"/>'
            f'<Option type="QString" name="outline_width" value="{outline.millimetres}"/>'
            '<Option type="QString" name="outline_style" value="solid"/>'
            '<Option type="QString" name="style" value="solid"/></Option></layer></symbol>'
        )
    return (
        "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>"
        '<qgis version="3.28" styleCategories="Symbology">'
        '<renderer-v2 type="categorizedSymbol" attr="class" forceraster="0" symbollevels="0" enableorderby="0">'
        f"<categories>{''.join(categories)}</categories><symbols>{''.join(symbols)}</symbols></renderer-v2></qgis>\n"
    )


def _sld(layer: str, title: str, classes: Sequence[tuple[str, str]], outline: Outline) -> str:
    grey = f"#{outline.grey:02x}" + 2 * f"{outline.grey:02x}"
    rules = [
        f"<Rule><Name>{escape(name)}</Name><Title>{escape(name)}</Title>"
        "<ogc:Filter><ogc:PropertyIsEqualTo><ogc:PropertyName>class</ogc:PropertyName>"
        f"<ogc:Literal>{escape(name)}</ogc:Literal></ogc:PropertyIsEqualTo></ogc:Filter>"
        f'<PolygonSymbolizer><Fill><CssParameter name="fill">{colour}</CssParameter>'
        f'<CssParameter name="fill-opacity">{OPACITY}</CssParameter></Fill>'
        f'<Stroke><CssParameter name="stroke">{grey}</CssParameter>'
        f'<CssParameter name="stroke-width">{outline.pixels}</CssParameter>'
        f'<CssParameter name="stroke-opacity">{outline.opacity}</CssParameter></Stroke></PolygonSymbolizer></Rule>'
        for name, colour in classes
    ]
    lines = "\n".join(rules)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<StyledLayerDescriptor version="1.0.0" xmlns="http://www.opengis.net/sld" '
        'xmlns:ogc="http://www.opengis.net/ogc" xmlns:xlink="http://www.w3.org/1999/xlink" '
        'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" '
        'xsi:schemaLocation="http://www.opengis.net/sld http://schemas.opengis.net/sld/1.0.0/StyledLayerDescriptor.xsd">'
        f"\n<NamedLayer><Name>{escape(layer)}</Name><UserStyle><Name>{escape(layer)}</Name>"
        f"<Title>{escape(title)}</Title><FeatureTypeStyle>\n{lines}\n"
        "</FeatureTypeStyle></UserStyle></NamedLayer></StyledLayerDescriptor>\n"
    )
