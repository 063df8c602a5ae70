"""Toy chat templates and tokenizers: one quirk of a real model family each.

`LOCAL_TOYS` write after a turn what depends on the turn and the new messages alone. `DEPENDENT_TOYS` look at
more of the conversation. `TOYS` are all of them. Each is callable like a `tokenize_fn`.
"""

from .dependent import DEPENDENT_TOYS
from .local import LOCAL_TOYS
from .tokenizer import Tokenizer
from .toy import Message, Toy

TOYS: tuple[Toy, ...] = LOCAL_TOYS + DEPENDENT_TOYS

_BY_NAME = {toy.name: toy for toy in TOYS}


def toy_named(name: str) -> Toy:
    """Return a toy by its name.

    Args:
        name: One of the names of `TOYS`.

    Raises:
        KeyError: No toy has this name.

    >>> toy_named("chatml").quirk
    'none: every turn is written the same way, and the history is kept'
    """
    if name not in _BY_NAME:
        raise KeyError(f"no toy is named {name!r}; the names are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


__all__ = ["DEPENDENT_TOYS", "LOCAL_TOYS", "TOYS", "Message", "Tokenizer", "Toy", "toy_named"]
