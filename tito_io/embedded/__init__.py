"""An inference engine that needs no server and no download: a seeded sampler of random text.

It is not a language model. It answers on the routes of a vLLM 0.32 server, with a tokenizer and a chat
template of its own. On purpose its replies have the faults of real ones: ids that the tokenizer does not give
for their text, tags of tool calls spelled in plain tokens, malformed calls, turns that are cut, odd stops and
incomplete characters.

`app` is the engine as an ASGI application, `family` its model family, `FaultRates` says how often it makes
which fault, and `generate` samples one reply without HTTP.
"""

from tito_io.extras import missing

try:
    from .app import app
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("tito"):
        raise
    raise ModuleNotFoundError(missing(error.name), name=error.name) from error
from .generation import Generation, Sampler, SamplingSettings, generate
from .logprobs import SampledId
from .rng import TIDY, FaultRates
from .vocabulary import MAX_MODEL_LEN, MODEL, Vocabulary, family, vocabulary, write_family

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
