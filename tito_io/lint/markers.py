"""The markers that a template writes, collected from its source by their looks."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MARKER = re.compile(
    r"<\|[^\s|<>{}'\"]{1,64}\|>"  # <|im_start|>
    r"|<｜[^\s｜<>{}'\"]{1,64}｜>"  # noqa: RUF001  # some models' bars are wide ones
    r"|<(?:start|end)_of_[a-z]{1,32}>"
    r"|</?s>|<(?:bos|eos)>"
    r"|\[/?[A-Z][A-Z_]{2,31}\]"  # [INST], [/INST]
)
MOST = 512
"""More markers than any model has; a source with more is none."""


def markers(source: str) -> tuple[str, ...]:
    """Return what looks like a special token in a template's source, each once, in order.

    One that the template puts together, such as `'<|' + role + '|>'`, does not show.

    >>> markers("<|im_start|>{{ m.role }}[INST] {{ x['AB'] }}<|im_start|>")
    ('<|im_start|>', '[INST]')
    """
    found = dict.fromkeys(match.group() for match in _MARKER.finditer(source))
    return tuple(found)[:MOST]


def lacking(known: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted tokens that are not known, each once, in order."""
    have = frozenset(known)
    return tuple(dict.fromkeys(token for token in wanted if token not in have))
