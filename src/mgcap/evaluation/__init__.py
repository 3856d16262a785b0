"""Measurements: how accurate, how fast."""
