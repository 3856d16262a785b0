"""Names of classes as people write them; models keep the labels of their training data."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

#: Names of the classes of UC Merced, AID and NWPU-RESISC45, where a label may have them without spaces.
_KNOWN = (
    "baseball diamond", "baseball field", "dense residential", "medium residential", "sparse residential",
    "golf course", "mobile home park", "parking lot", "storage tank", "storage tanks", "tennis court", "bare land",
    "railway station", "basketball court", "circular farmland", "rectangular farmland", "commercial area",
    "industrial area", "ground track field", "sea ice", "thermal power station",
    "agricultural", "airplane", "airport", "beach", "bridge", "buildings", "center", "chaparral", "church", "cloud",
    "commercial", "desert", "farmland", "forest", "freeway", "harbor", "industrial", "intersection", "island", "lake",
    "meadow", "mountain", "overpass", "palace", "park", "parking", "playground", "pond", "port", "railway", "resort",
    "river", "roundabout", "runway", "school", "ship", "snowberg", "square", "stadium", "terrace", "viaduct", "wetland",
)  # fmt: skip
_BY_LETTERS = {name.replace(" ", ""): name for name in _KNOWN}


def human_name(label: object) -> str:
    """What people call a class: ``mediumresidential``, ``MediumResidential`` and ``medium_residential`` alike.

    Classes of known data sets have their names; elsewhere underscores, hyphens and capitals within a word become
    spaces, and everything else stays.
    """
    text = "".join(letter if letter.isprintable() else " " for letter in str(label))
    if known := _BY_LETTERS.get(re.sub(r"[\s_-]", "", text).lower()):
        return known
    if " " in text.strip():
        return text.strip()
    words = re.sub(r"_+|(?<=[^\W\d_])-(?=\w)", " ", text)
    split = re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][^\W\d_A-Z])", " ", words)
    if split != words:
        split = " ".join(word.lower() if word.istitle() else word for word in split.split())
    return split.strip() or str(label)


def human_names(labels: Sequence[object]) -> tuple[str, ...]:
    """The names of all classes of a model; labels that would have the same one keep themselves."""
    names = [human_name(label) for label in labels]
    count = Counter(names)
    return tuple(name if count[name] == 1 else str(label) for name, label in zip(names, labels, strict=True))
