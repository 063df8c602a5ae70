"""Programs of other packages. Each runs in a process whose environment has its package.

These modules import the standard library, the package and `benchmarks.clock`, and nothing of tito.
"""
