"""Faults to plant in the kernel, one at a time, to see that its tests notice."""
