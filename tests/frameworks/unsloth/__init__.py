"""Unsloth, imported before TRL."""
