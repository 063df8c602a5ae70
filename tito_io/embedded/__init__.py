"""The engine for where there is no engine: in this process, nothing downloaded, real enough to hurt.

A sampler of words, not a language model, behind the routes of a vLLM 0.32 server, with its own tokenizer and
chat template. Its replies have the faults that real ones have: ids that no tokenizer gives, tags spelled in
plain letters, broken calls, odd ends, halves of characters.
"""

from .app import app, family
from .draws import TIDY, FaultRates
from .folder import MAX_MODEL_LEN, MODEL, write_family
from .generation import Generation, SampledId, SamplingSettings, generate
from .sampler import Sampler
from .vocabulary import Vocabulary, vocabulary

__all__ = [
    "MAX_MODEL_LEN",
    "MODEL",
    "TIDY",
    "FaultRates",
    "Generation",
    "SampledId",
    "Sampler",
    "SamplingSettings",
    "Vocabulary",
    "app",
    "family",
    "generate",
    "vocabulary",
    "write_family",
]
