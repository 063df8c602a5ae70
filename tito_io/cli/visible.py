"""Texts as they may be shown: nothing in them acts on a terminal."""

from __future__ import annotations


def visible(text: str) -> str:
    r"""Return a text with its white space, and what a terminal would act on, in sight.

    >>> visible("a b\n\x1b[31m")
    'a b\\n\\x1b[31m'
    """
    return "".join(one if one == " " or one.isprintable() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
