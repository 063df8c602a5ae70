"""Mutants of the project's code, drawn at random, and whether the tests that reach them fail."""
