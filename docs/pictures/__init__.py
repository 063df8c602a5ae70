"""Draw the documentation's pictures from real runs of the embedded engine.

`python -m docs.pictures` writes all pictures; `python -m docs.pictures drift` writes one. The files land
beside this program. The engine is seeded, so each run writes the same bytes.
"""
