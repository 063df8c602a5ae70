"""Faults to plant in the project, one at a time, to check that its tests fail."""
