"""Thin adapters between the kernel and the world: engines, tokenizers, chat templates, the command."""
