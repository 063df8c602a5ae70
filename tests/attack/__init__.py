"""Attacks on tito: `python -m pytest tests/attack` runs all of them.

`test_gateway.py` attacks a gateway that runs as a process of its own. `elsewhere.py` lists attacks that are
among the tests of what they attack; they run with these.
"""
