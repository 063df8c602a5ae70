"""What a chat template allows, shown before anything runs: certified cases, and where history changes."""
