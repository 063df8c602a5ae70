"""Model folders: render messages with a chat template and tokenize the text, as transformers does."""

from .family import Bound, Family
from .folder import FolderError

__all__ = ["Bound", "Family", "FolderError"]
