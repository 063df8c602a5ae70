"""How each peer makes the next prompt: `next_prompt` takes an `Asked` and returns ids, or None."""
