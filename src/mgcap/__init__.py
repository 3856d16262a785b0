"""Remote sensing scene classification by multi-granularity canonical appearance pooling (MG-CAP)."""

from mgcap import embedding, pooling, spectral, views
from mgcap._version import __version__
from mgcap.classifier import SceneClassifier
from mgcap.config import MGCAPConfig
from mgcap.errors import BundleError, DataError, ImageError, MgcapError, WeightsError
from mgcap.model import MGCAP

load = SceneClassifier.load

__all__ = [
    "MGCAP",
    "BundleError",
    "DataError",
    "ImageError",
    "MGCAPConfig",
    "MgcapError",
    "SceneClassifier",
    "WeightsError",
    "__version__",
    "embedding",
    "load",
    "pooling",
    "spectral",
    "views",
]
