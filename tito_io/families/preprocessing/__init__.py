"""What engines do to chat messages before a chat template sees them."""
