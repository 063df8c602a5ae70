"""`tito lint`: which turns a chat template lets continue exactly, and where it changes history."""
