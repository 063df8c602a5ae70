"""Failing tests: what came out wrong and is not mended."""
