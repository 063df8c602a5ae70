"""A conversation with an engine, every sampled id accounted for."""
