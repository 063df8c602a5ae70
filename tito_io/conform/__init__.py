"""Conformance: language-neutral test vectors of next prompts, and a runner that asks any program for them."""
