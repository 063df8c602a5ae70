"""The package `fastokens` in place of `tokenizers`, where both were seen to give the same ids."""
