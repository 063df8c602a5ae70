"""Engines: one small protocol, an adapter each, none knowing another."""
