"""Measure the retokenization drift of a real engine's turns, by cause."""
