"""Decide which messages are the same, and say which differences were forgiven."""
