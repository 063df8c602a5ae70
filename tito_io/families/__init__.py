"""Model folders and tokenizers: render messages with a chat template and tokenize the text."""

from tito_io.extras import missing

try:
    from .family import Bound, Family
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("tito"):
        raise
    raise ModuleNotFoundError(missing(error.name), name=error.name) from error
from .folder import FolderError
from .image_tokens import image_placeholder
from .images import ExpandedPrompt, WithImages
from .rendering import FamilyRendering
from .stored_profile import StoredProfile
from .tokenizer_family import TokenizerBound, TokenizerFamily

__all__ = [
    "Bound",
    "ExpandedPrompt",
    "Family",
    "FamilyRendering",
    "FolderError",
    "StoredProfile",
    "TokenizerBound",
    "TokenizerFamily",
    "WithImages",
    "image_placeholder",
]
