"""The model and the kernel, asked the same questions."""
