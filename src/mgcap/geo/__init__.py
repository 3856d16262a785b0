"""GeoTIFF to georeferenced class maps; and from labels on rasters to models of one's own classes."""

from __future__ import annotations

import importlib
from typing import Any

#: What people look for here, though it is put together above: loaded when it is first used.
_ABOVE = {"fit_raster": "mgcap.labelling.rasters", "label": "mgcap.serve.notebook"}


def __getattr__(name: str) -> Any:
    if name in _ABOVE:
        try:
            return getattr(importlib.import_module(_ABOVE[name]), name)
        except ModuleNotFoundError as error:
            raise ImportError(f"{name} needs more packages ({error.name}): pip install 'mgcap[geo,web]'") from error
    raise AttributeError(f"module 'mgcap.geo' has no attribute '{name}'")
