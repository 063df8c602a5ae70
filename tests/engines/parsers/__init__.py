"""What the engines' own parsers read in a model's outputs, recorded without an engine."""
