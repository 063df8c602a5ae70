"""Images and other media in token ids: their ranges, their placeholders, and what engines make of those."""
