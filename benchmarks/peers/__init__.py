"""Programs from the package index, each run in a process whose environment has it.

These files need the standard library, the peer and `benchmarks.clock`, and nothing of tito.
"""
