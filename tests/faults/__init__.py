"""Faults to plant in the kernel, one at a time, to check that its tests fail."""
