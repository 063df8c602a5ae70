"""`tito lint`: find which turns continue exactly under a chat template, and where it changes history."""
