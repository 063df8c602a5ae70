"""Sources of the documentation, and the programs that draw its pictures."""
