"""The executable model: what the right answer is, in the plainest Python.

Messages, templates, tokenizers, stitch, bridge, forest, rows: one file each, to be read beside `docs/`. The
model sees the whole conversation and the whole rendered text, and knows who wrote each character. So it
needs no proof, shares nothing and remembers nothing. `compare` asks it and the kernel the same questions.
"""
