"""Measurements: how accurate, how fast. What studies of other packages need stands here."""

from mgcap.evaluation.resumed import check_fingerprint, data_fingerprints, read_run
from mgcap.evaluation.significance import add_significance

__all__ = ["add_significance", "check_fingerprint", "data_fingerprints", "read_run"]
