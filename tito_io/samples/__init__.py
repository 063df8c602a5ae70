"""Stored conversations become training rows: readers, writers and the `tito samples` command.

Everything between a file's lines and a row is pure and made of values that can be sent elsewhere, so the
same functions run in one process and over a cluster.
"""
