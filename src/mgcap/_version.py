"""The package's version, as installed."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("mgcap")
except PackageNotFoundError:  # pragma: no cover  (a source tree that is not installed)
    __version__ = "0+unknown"
