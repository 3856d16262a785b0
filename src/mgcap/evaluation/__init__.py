"""Measurements: how fast."""
