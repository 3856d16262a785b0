"""Errors that are meant to be read by people: one sentence each, saying what to do."""

from collections.abc import Iterable


class MgcapError(Exception):
    """Base of every error the package raises on purpose."""


class DataError(MgcapError):
    """A folder, split file or set of labels cannot be used."""


class ImageError(DataError):
    """One image cannot be read."""


class RasterError(DataError):
    """A raster cannot be mapped."""


class WeightsError(MgcapError):
    """Pretrained weights cannot be had, or are not what they should be."""


class BundleError(MgcapError):
    """A model file is truncated, tampered with, too new or not ours."""


def unknown_class(name: str, known: Iterable[str]) -> DataError:
    """The error of a class that a model has not learnt."""
    return DataError(f"the model does not know the class '{name}'; it knows {', '.join(known)}")
