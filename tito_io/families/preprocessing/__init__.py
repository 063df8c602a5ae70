"""Change chat messages as engines do before a chat template sees them."""
