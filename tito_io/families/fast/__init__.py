"""Use the package `fastokens` in place of `tokenizers` if both give the same ids."""
