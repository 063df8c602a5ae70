"""Find what an engine learns about a chat template before it renders: by its syntax, or by short renders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, nodes

from tito_core import TemplateRefused
from tito_io.families.folder import FolderError, Source
from tito_io.families.limits import TemplateLimits
from tito_io.families.sandbox import Sandbox
from tito_io.families.template import ChatTemplate

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Lists(Enum):
    """How an engine finds out that a template takes a content as a list of parts."""

    NEVER = "no template is taken for one"
    REQUIRED = "a short render shows the text of a list, and not that of a string"
    LOOPS = "a loop over the content of a message of `messages`, also in a macro"
    LOOPED = "a short render reads the parts of a content"
    LOOPED_TEXTS = "the same for a text, which then is not written"
    NAMED_LOOPS = "a loop over the content of `message`, `msg` or `m`, or a word such as `image` anywhere"


def parsed(source: str) -> nodes.Template | None:
    """Return a template's syntax; None where it has none, so that the engine takes it for one of texts."""
    try:
        return Sandbox(TemplateLimits()).parse(source)
    except (TemplateError, RecursionError):
        return None


@lru_cache(maxsize=64)
def takes_lists(source: str, how: Lists) -> bool:
    """Return whether an engine takes a template for one that loops over parts.

    >>> takes_lists("{% for m in messages %}{% for p in m.content %}{% endfor %}{% endfor %}", Lists.LOOPS)
    True
    >>> takes_lists("{{ messages[0].content }}", Lists.LOOPS)
    False
    """
    return _FINDERS[how](source)


def _has_loops(source: str) -> bool:
    tree = parsed(source)
    try:
        return tree is not None and any(_content_loops(tree))
    except _NotANameError:
        return False


class _NotANameError(Exception):
    """An assignment or a loop has no single name as its target: vLLM gives up, and takes texts."""


def _content_loops(tree: nodes.Template) -> Iterator[bool]:
    """Yield True for each loop over a content, in the order in which vLLM comes to them."""
    items = list(_loop_names(tree, list(_aliases(tree, "messages"))))
    in_macros = _macro_loops(tree, items)
    for loop in tree.find_all(nodes.For):
        if any(_reads(loop.iter, one, "content") for one in items):
            yield bool(_name(loop.target))
        elif isinstance(loop.iter, nodes.Name):
            known = in_macros.get(id(loop))
            if loop.iter.name in (known or ()) or (known is None and loop.iter.name == "content"):
                yield bool(_name(loop.target))


def _aliases(tree: nodes.Template, name: str) -> Iterator[str]:
    """Yield a name, and each name that gets its value, a slice of it or what a filter makes of it."""
    known, waiting = {name}, [name]
    while waiting:
        current = waiting.pop(0)
        yield current
        for one in tree.find_all(nodes.Assign):
            if _reads(one.node, current) and (found := _name(one.target)) not in known:
                known.add(found)
                waiting.append(found)


def _loop_names(tree: nodes.Template, lists: list[str]) -> Iterator[str]:
    """Yield the variables of loops over one of `lists`."""
    for loop in tree.find_all(nodes.For):
        if any(_reads(loop.iter, one) for one in lists):
            yield _name(loop.target)


def _macro_loops(tree: nodes.Template, items: list[str]) -> dict[int, set[str]]:
    """Return the loops in macros, and which parameters of the macro get a message's content."""
    found: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro):
        contents = set(_content_parameters(tree, macro, items))
        for loop in macro.find_all(nodes.For):
            found[id(loop)] = contents or found.get(id(loop), set())
    return found


def _content_parameters(tree: nodes.Template, macro: nodes.Macro, items: list[str]) -> Iterator[str]:
    names = [one.name for one in macro.args]
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            given = [*zip(names, call.args, strict=False), *((one.key, one.value) for one in call.kwargs)]
            for name, value in given:
                if name in names and any(_reads(value, item, "content") for item in items):
                    yield name


def _name(target: nodes.Node) -> str:
    if not isinstance(target, nodes.Name):
        raise _NotANameError
    return target.name


def _reads(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Return whether a node is a variable, or its `key`: as it is, filtered, tested or sliced."""
    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    if key is None:
        return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
    return isinstance(node, nodes.Getitem | nodes.Getattr) and _key(node) == key and _reads(node.node, name)


def _key(node: nodes.Getitem | nodes.Getattr) -> Any:
    """Return the key that is looked up, as `m.content` and `m["content"]` do; None for a computed one."""
    if isinstance(node, nodes.Getattr):
        return node.attr
    return node.arg.value if isinstance(node.arg, nodes.Const) else None


def _has_named_loops(source: str) -> bool:
    if any(word in source for word in ("image", "audio", "video", "vision")):
        return True
    tree = parsed(source)
    loops = [] if tree is None else list(tree.find_all(nodes.For))
    return any(_reads(loop.iter, name, "content") for loop in loops for name in ("message", "msg", "m"))


def _requires_lists(source: str) -> bool:
    text = "template_test"
    as_list, as_text = (
        rendered(source, [{"role": "user", "content": one}]) or ""
        for one in ([{"type": "text", "text": text}], text)
    )
    return text in as_list and text not in as_text


class _Text(str):
    """A content that knows whether it was looped over, or asked for a character, which llama.cpp rejects."""

    __slots__ = ("looped",)

    def __init__(self, _: str) -> None:
        self.looped = False

    def __iter__(self) -> Iterator[str]:
        self.looped = True
        raise TypeError("a text has no parts")

    def __getitem__(self, key: Any) -> str:
        self.looped = self.looped or isinstance(key, int)
        return super().__getitem__(key)


class _Part(dict[str, Any]):
    """A part that knows whether one of its keys was read."""

    read = False

    def __getitem__(self, key: str) -> Any:
        self.read = True
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self.read = True
        return super().get(key, default)


class _NoParts(list[Any]):
    """A list that is empty unless it is looped over."""

    def __len__(self) -> int:
        return 0


def _loops_in_render(source: str) -> bool:
    text, part = _Text("template_test"), _Part(type="text", text="template_test")
    rendered(source, [{"role": "user", "content": text}])
    if text.looped or "is string" not in source:
        return text.looped
    return rendered(source, [{"role": "user", "content": _NoParts([part])}]) is not None and part.read


def _loops_over_texts(source: str) -> bool:
    text = _Text("template_test")
    return text not in (rendered(source, [{"role": "user", "content": text}]) or "") and text.looped


_FINDERS: Mapping[Lists, Callable[[str], bool]] = {
    Lists.NEVER: lambda _: False,
    Lists.REQUIRED: _requires_lists,
    Lists.LOOPS: _has_loops,
    Lists.LOOPED: _loops_in_render,
    Lists.LOOPED_TEXTS: _loops_over_texts,
    Lists.NAMED_LOOPS: _has_named_loops,
}


@lru_cache(maxsize=4)
def _compiled(source: str) -> ChatTemplate:
    return ChatTemplate.compile(Source(source, "chat template"))


def rendered(source: str, messages: list[dict[str, Any]]) -> str | None:
    """Return what a template writes at noon of a fixed day; None where it rejects the messages."""
    try:
        return _compiled(source).render({"bos_token": "", "eos_token": "", "messages": messages}, now=NOON)
    except (FolderError, TemplateRefused):
        return None


ARGUMENTS = {"probe": "value"}
CALL = {"id": "a1b2c3d4e", "type": "function"}


@lru_cache(maxsize=64)
def writes_argument_texts(source: str) -> bool:
    """Return whether a template writes arguments that are a text as they are, without quotes.

    >>> writes_argument_texts("{{ messages[1].tool_calls[0].function.arguments }}")
    True
    >>> writes_argument_texts("{{ messages[1].tool_calls[0].function.arguments | tojson }}")
    False
    """
    return _writes_arguments(source, json.dumps(ARGUMENTS))


@lru_cache(maxsize=64)
def writes_argument_objects(source: str) -> bool:
    """Return whether a template writes arguments that are an object as JSON."""
    return _writes_arguments(source, ARGUMENTS)


@lru_cache(maxsize=64)
def refuses_late_systems(source: str) -> bool:
    """Return whether a template refuses a system text for its place."""
    first, *rest = (_said(role) for role in ("system", "user", "assistant", "user"))
    late = [first, *rest[:2], first, *rest[2:]]
    return rendered(source, late) is None and rendered(source, [first, *rest]) is not None


@lru_cache(maxsize=64)
def refuses_two_users(source: str) -> bool:
    """Return whether a template refuses two messages of the user, one after the other."""
    return rendered(source, [_said("user"), _said("user")]) is None


def _said(role: str) -> dict[str, Any]:
    return {"role": role, "content": "x"}


@lru_cache(maxsize=64)
def reads_argument_objects(source: str) -> bool:
    """Return whether a template renders a conversation of texts with a call, and an object's value in it."""
    asked, said = {"role": "user", "content": _Text("q")}, {"role": "assistant", "content": _Text("a")}
    call = {**CALL, "function": {"name": "f", "arguments": {"probe": "probe_value"}}}
    calling = {"role": "assistant", "content": _Text(""), "tool_calls": [call]}
    result = {"role": "tool", "content": _Text("r"), "tool_call_id": CALL["id"]}
    return "probe_value" in (rendered(source, [asked, calling, result, said, asked]) or "")


def _writes_arguments(source: str, arguments: Any) -> bool:
    call = {**CALL, "function": {"name": "f", "arguments": arguments}}
    asked = {"role": "user", "content": "q"}
    text = rendered(source, [asked, {"role": "assistant", "content": "", "tool_calls": [call]}])
    return text is not None and json.dumps(ARGUMENTS) in text
