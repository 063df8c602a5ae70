"""Tools for tests of a framework that embeds tito: an assertion, toy chat templates, hypothesis strategies.

`tito_core.testing.strategies` needs hypothesis; the names below do not. Errors quote the conversation.
"""

from .exact import NotTokenExactError, assert_token_exact
from .expected import CannotLocateError
from .mistakes import Mistake
from .sampled_turn import SampledTurn
from .toys import DEPENDENT_TOYS, LOCAL_TOYS, TOYS, Tokenizer, Toy, toy_named

__all__ = [
    "DEPENDENT_TOYS",
    "LOCAL_TOYS",
    "TOYS",
    "CannotLocateError",
    "Mistake",
    "NotTokenExactError",
    "SampledTurn",
    "Tokenizer",
    "Toy",
    "assert_token_exact",
    "toy_named",
]
