"""Fuzzers of everything that parses bytes: engines' replies, clients' requests, files."""
