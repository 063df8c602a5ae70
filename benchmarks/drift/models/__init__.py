"""Measure how often the history of real models' conversations drifts, by turn."""
