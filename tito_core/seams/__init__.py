"""What a chat template writes between two turns: asked for, proven and remembered."""
