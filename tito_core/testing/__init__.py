"""Tools for tests of a framework that embeds tito."""
