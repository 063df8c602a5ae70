"""Benchmarks: time and memory of tito, mostly as ratios within one run."""
