"""Model folders and tokenizers: render messages with a chat template and tokenize the text."""

from .family import Bound, Family
from .folder import FolderError
from .placeholders import image_placeholder
from .stored_profile import StoredProfile
from .tokenizer_family import TokenizerBound, TokenizerFamily

__all__ = [
    "Bound",
    "Family",
    "FolderError",
    "StoredProfile",
    "TokenizerBound",
    "TokenizerFamily",
    "image_placeholder",
]
