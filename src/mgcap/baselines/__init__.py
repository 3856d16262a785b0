"""The methods that MG-CAP is compared with, behind one interface; see :mod:`mgcap.baselines.method`."""

from mgcap.baselines.method import METHODS, About, Method, Tools, find_methods, register

__all__ = ["METHODS", "About", "Method", "Tools", "find_methods", "register"]
