"""The words that a chat template looks for in messages, taken from its source.

A template may remember over its loop whether a message said one of them, such as `failed:`. The kernel asks
about those that a conversation said (see `tito_core.TokenizeFn`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise

from jinja2 import nodes

from tito_core.message import SWITCHES

from .preprocessing.template_traits import parsed

ROLES = frozenset(
    ("system", "developer", "user", "human", "assistant", "chatbot", "bot", "ai", "gpt", "model", "tool")
) | {"tool_response", "function", "ipython", "observation", "environment"}
KINDS = frozenset(
    ("text", "image", "image_url", "video", "video_url", "audio", "audio_url", "input_audio", "document")
) | {"string", "number", "integer", "boolean", "object", "array", "null"}
"""Types of parts, and of values in JSON schemas."""
KEYS = frozenset(("role", "content", "name", "type", "tools", "tool_calls", "tool_call_id", "function", "id"))
NAMED = frozenset(("role", "type"))
"""Keys and variables whose values are names, and not what a message says."""
SEARCHES = frozenset(
    ("startswith", "endswith", "find", "rfind", "index", "rindex", "count", "removeprefix", "removesuffix")
) | {"split", "rsplit", "partition", "rpartition", "replace"}
"""Methods of texts whose first argument is looked for."""
EQUAL = frozenset(("in", "eq", "equalto", "==", "ne", "!="))
"""Tests that compare with a text, as in `'a' is in b`."""
CASES = frozenset(("lower", "upper", "title", "capitalize"))
"""Filters and methods after which a word is found in other cases than its own."""


def words_in(sources: Sequence[str]) -> tuple[str, ...]:
    """Return the words that templates with these `sources` look for in messages, each once.

    >>> words_in(["{% for m in messages %}{{ 'it failed' if 'failed:' in m.content }}{% endfor %}"])
    ('failed:',)
    """
    return tuple(dict.fromkeys(chain.from_iterable(map(_words, sources))))


@lru_cache(maxsize=64)
def _words(source: str) -> tuple[str, ...]:
    tree = parsed(source)
    if tree is None:
        return ()
    reading = _reading(tree)
    left_out = ROLES | KINDS | KEYS | set(_keys(tree)) | set(SWITCHES)  # the kernel knows the switches itself
    found = dict.fromkeys(
        word
        for texts, other in _searches(tree)
        if reading.intersection(_names(other)) and _named(other) not in NAMED
        for text in texts
        for word in _texts(tree, text)
        if word.strip() and word not in left_out
    )
    if CASES.isdisjoint(chain(_filters(tree), (one.attr for one in tree.find_all(nodes.Getattr)))):
        return tuple(found)
    cases = ((word, word.lower(), word.upper(), word.title(), word.capitalize()) for word in found)
    return tuple(dict.fromkeys(chain.from_iterable(cases)))


def _searches(tree: nodes.Template) -> Iterator[tuple[Sequence[nodes.Node], nodes.Node]]:
    """Yield what may be texts that are looked for, and in what."""
    for compare in tree.find_all(nodes.Compare):
        for one, other in pairwise((compare.expr, *(operand.expr for operand in compare.ops))):
            yield (one,), other
            yield (other,), one
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in SEARCHES:
            yield call.args[:1], call.node.node
    for test in tree.find_all(nodes.Test):
        if test.name in EQUAL and test.args:
            yield (test.node,), test.args[0]
            yield test.args[:1], test.node
    yield from _filtered(tree)


def _filtered(tree: nodes.Template) -> Iterator[tuple[Sequence[nodes.Node], nodes.Node]]:
    """Yield the same of filters, such as `selectattr('content', 'equalto', 'x')`."""
    for found in tree.find_all(nodes.Filter):
        if found.node is None:
            continue
        if found.name == "replace":
            yield found.args[:1], found.node
        if found.name in {"select", "reject"}:
            yield found.args[1:], found.node
        if found.name in {"selectattr", "rejectattr"} and NAMED.isdisjoint(_literal(found.args[:1])):
            yield found.args[2:], found.node


def _literal(values: Sequence[nodes.Node]) -> list[str]:
    """Return the texts that are written out among values."""
    return [one.value for one in values if isinstance(one, nodes.Const) and isinstance(one.value, str)]


def _reading(tree: nodes.Template) -> set[str]:
    """Return the variables that may hold what messages say: all whose value is made of a message."""
    reading = {"messages"}
    bound: list[tuple[nodes.Node, nodes.Node]] = list(_parameters(tree))
    bound += ((one.target, one.node) for one in tree.find_all(nodes.Assign))
    bound += ((one.target, one.iter) for one in tree.find_all(nodes.For))
    bound += ((one.target, one) for one in tree.find_all(nodes.AssignBlock))
    size = 0
    while size < len(reading):
        size = len(reading)
        for target, value in bound:
            if reading.intersection(_names(value)):
                reading.update(_names(target))
    return reading


def _parameters(tree: nodes.Template) -> Iterator[tuple[nodes.Node, nodes.Node]]:
    """Yield the parameters of macros, each with a value that it is given somewhere."""
    macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
    for call in tree.find_all(nodes.Call):
        macro = macros.get(call.node.name) if isinstance(call.node, nodes.Name) else None
        if macro is not None:
            yield from zip(macro.args, call.args, strict=False)
            named = {one.key: one.value for one in call.kwargs}
            yield from ((one, named[one.name]) for one in macro.args if one.name in named)


def _names(node: nodes.Node) -> Iterator[str]:
    """Yield the variables in an expression, itself among them."""
    of_namespaces = [node] if isinstance(node, nodes.NSRef) else node.find_all(nodes.NSRef)
    names = [node] if isinstance(node, nodes.Name) else node.find_all(nodes.Name)
    yield from (one.name for one in (*names, *of_namespaces))


def _texts(tree: nodes.Template, node: nodes.Node, depth: int = 4) -> Iterator[str]:
    """Yield the texts that an expression is, or that a list or variable in it has."""
    if isinstance(node, nodes.Const) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, nodes.List | nodes.Tuple):
        for item in node.items:
            yield from _texts(tree, item, depth)
    elif isinstance(node, nodes.Dict):
        for pair in node.items:
            yield from _texts(tree, pair.key, depth)
    elif isinstance(node, nodes.Name) and depth:
        given = [one.node for one in tree.find_all(nodes.Assign) if node.name in _names(one.target)]
        given += (one.iter for one in tree.find_all(nodes.For) if node.name in _names(one.target))
        for value in given:
            yield from _texts(tree, value, depth - 1)


def _keys(tree: nodes.Template) -> Iterator[str]:
    """Yield the keys that a template looks up."""
    yield from (one.attr for one in tree.find_all(nodes.Getattr))
    yield from (key for one in tree.find_all(nodes.Getitem) if (key := _key(one)) is not None)
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr == "get":
            yield from _literal(call.args[:1])


def _key(node: nodes.Node) -> str | None:
    """Return the key that an expression looks up, as `m.role` and `m['role']` do; None for any other."""
    if isinstance(node, nodes.Getattr):
        return node.attr
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const):
        return node.arg.value if isinstance(node.arg.value, str) else None
    return None


def _named(node: nodes.Node | None) -> str | None:
    """Return the key or variable that an expression is, with or without filters."""
    while isinstance(node, nodes.Filter):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else None if node is None else _key(node)


def _filters(tree: nodes.Template) -> Iterator[str]:
    return (one.name for one in tree.find_all(nodes.Filter))
