"""What the kernel makes of every chat template that packages on the index bundle."""
