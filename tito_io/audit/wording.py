"""Numbers and texts as they are shown."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return a number of things.

    >>> count(1, "break"), count(2000, "break")
    ('1 break', '2,000 breaks')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def share(rate: float | None) -> str:
    """Return a share in percent, never 0% or 100% for what only rounds to it.

    >>> share(0.25), share(0.00001), share(0.99999), share(1.0), share(None)
    ('25.0%', '<0.1%', '>99.9%', '100.0%', '-')
    """
    if rate is None:
        return "-"
    if 0 < rate < 0.001:  # noqa: PLR2004  # a tenth of a percent
        return "<0.1%"
    return ">99.9%" if 0.999 < rate < 1 else f"{rate:.1%}"  # noqa: PLR2004  # likewise


def seen(text: str) -> str:
    r"""Return text with its white space made visible, and nothing that a terminal or a page would obey.

    >>> seen("a b\n\tc\x1b")
    'a·b⏎→c�'
    """
    return plain(text.replace(" ", "·").replace("\n", "⏎").replace("\t", "→").replace("\r", "␍"))


def plain(text: str) -> str:
    r"""Return text with nothing in it that a terminal or a page would obey.

    >>> plain("a b\x1b[31m")
    'a b�[31m'
    """
    return "".join(letter if letter.isprintable() else "�" for letter in text)
