"""Find, prove and remember what a chat template writes between two turns."""
