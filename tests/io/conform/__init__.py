"""Tests of the conformance vectors, the runner and the pytest plugin."""
