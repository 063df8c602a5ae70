"""Tests inside an engine's own environment, with objects of its Python package."""
