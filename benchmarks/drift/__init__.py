"""Drift of a real engine's turns, measured by cause."""
