"""Compute how large the result of an operation would be, and how long it takes, before the operation runs.

Most operations add, and their results are measured afterwards. The operations here multiply: a short template
makes a long text out of one number. Each function returns a length or raises `LimitReached`. Functions for
filters have the filter's signature, so that wrong arguments raise the same `TypeError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .limits import LimitReached

if TYPE_CHECKING:
    from .limits import TemplateLimits

_NUMBER = re.compile(r"\d+")
_WIDTHS = re.compile(r"[-#0 +]*(\d*)\.?(\d*)")
"""What may follow the `%` of a conversion that names no key."""


def product(limits: TemplateLimits, left: Any, right: Any) -> None:
    """Weigh `left * right`: a repeated text or list, or an integer."""
    if isinstance(left, int) and isinstance(right, int):
        limits.integer(left.bit_length() + right.bit_length())
    for many, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(many, str | bytes):
            limits.text(len(many) * times)
        if isinstance(times, int) and isinstance(many, list | tuple):
            limits.count(len(many) * times)


def power(limits: TemplateLimits, base: Any, exponent: Any) -> None:
    """Weigh `base ** exponent`."""
    if isinstance(base, int) and isinstance(exponent, int):
        limits.integer(base.bit_length() * abs(exponent))


def pattern(limits: TemplateLimits, left: Any, right: Any) -> None:
    """Weigh `left % right`, where the text `left` may have widths: `"%9999d"` or `"%*d"`."""
    if not isinstance(left, str | bytes):
        return
    values = right if isinstance(right, tuple) else (right,)
    text = left if isinstance(left, str) else left.decode("latin-1")
    limits.count(text.count("%"))
    widths = [number for part in text.split("%")[1:] for number in _widths(part)]
    if "*" in text:
        widths += [abs(value) for value in values if isinstance(value, int)]
    uses = text.count("%") if isinstance(right, dict) else 1
    limits.text(len(text) + sum(widths) + limits.weigh(right) * uses)


def _widths(part: str) -> list[int]:
    """Return the widths that a conversion may have, given what follows its `%`.

    >>> _widths("-12.3f of 7"), _widths("(key)12d of 7"), _widths("s of 7")
    ([12, 3], [12, 7], [])
    """
    found = _WIDTHS.match(part)
    numbers = _NUMBER.findall(part) if part.startswith("(") or found is None else found.groups()
    return [int(number) for number in numbers if number]


def spec(limits: TemplateLimits, text: str) -> None:
    """Weigh a format specification, `">9999"`."""
    for number in _NUMBER.findall(text):
        limits.text(int(number))


OPERATORS: Mapping[str, Callable[[TemplateLimits, Any, Any], None]] = {
    "*": product,
    "**": power,
    "%": pattern,
}


def _width(_limits: TemplateLimits, _text: Any, width: int = 0, *_: Any) -> int:
    return width


def _expanded(_limits: TemplateLimits, text: Any, tabsize: int = 8) -> int:
    return len(text) * (1 + tabsize)


def _replaced(_limits: TemplateLimits, text: Any, old: Any, new: Any, *_: Any, **__: Any) -> int:
    return len(text) + int(text.count(old)) * len(new)


def _put_together(limits: TemplateLimits, separator: Any, parts: Any) -> int:
    return limits.weigh(parts) + len(separator) * len(parts)


def _translated(limits: TemplateLimits, text: Any, table: Any, *_: Any) -> int:
    return len(text) * (limits.weigh(table) if isinstance(table, dict) else 1)


def _bytes(_limits: TemplateLimits, _number: Any, length: int = 1, *_: Any, **__: Any) -> int:
    return length


def _searched(limits: TemplateLimits, text: Any, part: Any = None, *_: Any, **__: Any) -> int:
    """Weigh a search that compares `part` anew at each place, as Python does from a text's end."""
    limits.work(len(text), len(part) if part else 1)
    return 0


def _encoded(_limits: TemplateLimits, text: Any, encoding: str = "utf-8", *_: Any, **__: Any) -> int:
    """Weigh a conversion; those of domain names take the square of a text's length."""
    if encoding.lower().replace("_", "-") not in _FAST_ENCODINGS:
        raise LimitReached(f"the encoding {encoding:.40}, which may be slow; use utf-8")
    return len(text)


_FAST_ENCODINGS = frozenset({"ascii", "latin-1", "utf8", "utf-8", "utf-16", "utf-32"})


def _in_case(_limits: TemplateLimits, text: Any, *_: Any) -> int:
    """One character may have three in the other case."""
    return len(text) * 3


def _stripped_tags(limits: TemplateLimits, text: Any, *_: Any) -> int:
    """Weigh the removal of HTML, which copies the text for each comment in it."""
    limits.work(len(text), _TAGS * (1 + text.count("<!--")))
    return len(text)


METHODS: Mapping[str, Callable[..., int]] = {
    "ljust": _width,
    "rjust": _width,
    "center": _width,
    "zfill": _width,
    "expandtabs": _expanded,
    "replace": _replaced,
    "join": _put_together,
    "translate": _translated,
    "to_bytes": _bytes,
    "strip": _searched,
    "lstrip": _searched,
    "rstrip": _searched,
    "rfind": _searched,
    "rindex": _searched,
    "rpartition": _searched,
    "rsplit": _searched,
    "encode": _encoded,
    "decode": _encoded,
    "upper": _in_case,
    "lower": _in_case,
    "casefold": _in_case,
    "swapcase": _in_case,
    "capitalize": _in_case,
    "title": _in_case,
    "striptags": _stripped_tags,
}


def _centred(_limits: TemplateLimits, _value: Any, width: int = 80) -> int:
    return width


def _indented(_limits: TemplateLimits, s: Any, width: int | str = 4, *_: Any, **__: Any) -> int:
    text = str(s)
    return len(text) + (width if isinstance(width, int) else len(width)) * (len(text.splitlines()) + 1)


def _substituted(_limits: TemplateLimits, s: Any, old: Any, new: Any, *_: Any, **__: Any) -> int:
    return len(str(s)) + str(s).count(str(old)) * len(str(new))


def _joined(limits: TemplateLimits, value: Any, d: Any = "", *_: Any, **__: Any) -> int:
    return limits.weigh(value) + len(str(d)) * (len(value) if hasattr(value, "__len__") else 0)


def _json(
    limits: TemplateLimits, x: Any, _ascii: Any = None, indent: Any = None, separators: Any = None, **_: Any
) -> int:
    length = limits.weigh(x)
    if indent is None and separators is None:
        return length
    step = indent if isinstance(indent, int) else len(indent or "")
    values, depth = _shape(x)
    return length + values * (depth * max(step, 0) + sum(map(len, separators or ())))


def _shape(value: Any) -> tuple[int, int]:
    """Return how many values JSON writes, and how deep it nests.

    >>> _shape([{"a": [1, 2]}])
    (5, 3)
    """
    level, values, depth = [value], 0, 0
    while level:
        values, depth = values + len(level), depth + 1
        nested = [one for one in level if isinstance(one, dict | list | tuple)]
        level = [part for one in nested for part in (one.values() if isinstance(one, dict) else one)]
    return values, depth - 1


def _filled(limits: TemplateLimits, _value: Any, length: int, *_: Any, **__: Any) -> int:
    return limits.count(length)


def _formatted(limits: TemplateLimits, value: Any, *args: Any, **kwargs: Any) -> int:
    pattern(limits, str(value), args or tuple(kwargs.values()))
    return 0


def _slow(factor: int) -> Callable[..., int]:
    """Return what weighs a filter that takes `factor` times as long as a copy of its value."""

    def weighed(limits: TemplateLimits, value: Any, *_: Any, **__: Any) -> int:
        limits.work(limits.weigh(value), factor)
        return 0

    return weighed


_TAGS = 10
_LONGEST_PATH = 4
_ROUNDED = 400
"""Digits of a number that a float can have."""


def _rounded(_limits: TemplateLimits, _value: Any, precision: int = 0, *_: Any, **__: Any) -> int:
    if abs(precision) > _ROUNDED:
        raise LimitReached(f"rounding to {precision} digits, where {_ROUNDED} are allowed")
    return 0


def _read_along(_limits: TemplateLimits, _value: Any, *args: Any, **kwargs: Any) -> int:
    """Weigh the path of an attribute, which is looked up in each item."""
    for path in (*args, *kwargs.values()):
        if isinstance(path, str) and path.count(".") > _LONGEST_PATH:
            raise LimitReached(f"an attribute's path with more than {_LONGEST_PATH} dots")
    return 0


def _trimmed(limits: TemplateLimits, value: Any, chars: Any = None) -> int:
    return _searched(limits, str(value), chars)


def _tags_of(limits: TemplateLimits, value: Any) -> int:
    return _stripped_tags(limits, str(value))


def _cased(limits: TemplateLimits, s: Any) -> int:
    return _in_case(limits, str(s))


FILTERS: Mapping[str, Callable[..., int]] = {
    "center": _centred,
    "indent": _indented,
    "replace": _substituted,
    "join": _joined,
    "tojson": _json,
    "batch": _filled,
    "slice": _filled,
    "format": _formatted,
    "round": _rounded,
    "trim": _trimmed,
    "upper": _cased,
    "lower": _cased,
    "capitalize": _cased,
    "striptags": _tags_of,
    **dict.fromkeys(("groupby", "map", "max", "min", "reject", "rejectattr"), _read_along),
    **dict.fromkeys(("select", "selectattr", "sort", "sum", "unique"), _read_along),
    # Measured against a copy of as many characters: regular expressions and loops of Python.
    "pprint": _slow(360),
    "title": _slow(500),
    "urlencode": _slow(160),
    "wordcount": _slow(100),
}
