"""Messages: when two are the same, and which differences were forgiven; see docs/reference/forgiveness.md."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

import attrs

from tito_core import Policy

Message = dict[str, Any]
Pairs = list[tuple[Any, Any]]
"""Ids of calls, as they are stored and as they came back, in the order in which they were seen."""
IDENTITY = ("role", "content", "reasoning", "reasoning_content", "tool_calls", "tool_call_id", "name")
"""The keys that make a message what it is."""


def plain(value: Any) -> Any:
    """Return the JSON data in a mapping, or in an object of a client library."""
    if hasattr(value, "model_dump"):
        return plain(value.model_dump())
    if attrs.has(type(value)):
        return plain(attrs.asdict(value, recurse=False))
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def names(members: Iterable[Enum]) -> list[str]:
    """Return the names of members of the kernel's enumerations."""
    return [member.name for member in members]


# --- what a message says -------------------------------------------------------------------------------


def text_or_parts(content: Any) -> Any:
    """Return the string that a lone text part is, any other content as it is."""
    parts = content if isinstance(content, list) else []
    return parts[0]["text"] if [part.get("type") for part in parts] == ["text"] else content


def said(message: Message) -> Any:
    """Return the content; None where an assistant says nothing, in whatever way."""
    content = text_or_parts(without_thinking(message))
    if isinstance(content, list):
        content = [medium(part) or (part.get("type"), part.get("text")) for part in content]
    return None if message["role"] == "assistant" and content in (None, "", []) else content


def thinking(message: Message) -> list[Message]:
    """Return the parts of an assistant's content that are reasoning."""
    return [part for part in parts(message) if message["role"] == "assistant" and part["type"] == "thinking"]


def without_thinking(message: Message) -> Any:
    """Return the content without reasoning."""
    apart = thinking(message)
    return [part for part in parts(message) if part not in apart] if apart else message.get("content")


def one_text(reasoning: Any) -> Any:
    """Return reasoning as one text: lists of texts, or of parts with texts, are joined."""
    if isinstance(reasoning, dict):
        return one_text(reasoning[reasoning["type"]])
    return "".join(map(one_text, reasoning)) if isinstance(reasoning, list) else reasoning


def thought(message: Message) -> Any:
    """Return the reasoning, under either of its names or in the content."""
    places = [*map(message.get, ("reasoning", "reasoning_content")), thinking(message)]
    found = [text for text in map(one_text, places) if text not in (None, "")]
    return found if len(set(found)) > 1 else found[0] if found else None


def calls(message: Message) -> list[Message]:
    """Return the tool calls, also a single one that is not in a list."""
    called = message.get("tool_calls") or []
    return called if isinstance(called, list) else [called]


def arguments(call: Message) -> Any:
    """Return arguments as readers of JSON have them if they are one object, else as they are.

    Numbers with a point or an exponent are doubles, and of equal keys the last one counts.
    """
    written = call["function"].get("arguments")
    if written in (None, ""):
        return {}
    try:
        found = json.loads(written, parse_int=Decimal, parse_constant=int)
    except (TypeError, ValueError):
        return written
    return found if isinstance(found, dict) else written


def medium(part: Message) -> tuple[str, str | None, Any] | None:
    """Return kind, identity and detail of a medium, None for a text: its key, or the digest of its bytes."""
    kind = re.match("image|audio|video", part.get("type", ""))
    source = part.get("image_url") or {}
    data = source.get("url", "").partition("base64,")[2]
    known = part.get("uuid") or (f"sha256:{hashlib.sha256(b64decode(data)).hexdigest()}" if data else None)
    return (kind[0], known, source.get("detail")) if kind else None


def media(messages: Sequence[Message]) -> list[tuple[str, str | None, Any]]:
    """Return the media of messages in their order."""
    parts = [part for m in messages if isinstance(m.get("content"), list) for part in m["content"]]
    return [found for part in parts if (found := medium(part))]


# --- when two are the same -----------------------------------------------------------------------------


def equal(a: Any, b: Any) -> bool:
    """Compare JSON values: `1` is `1.0`, and is neither `true` nor `"1"`."""
    if type(a) in (int, float, Decimal) and type(b) in (int, float, Decimal):
        return Decimal(str(a)) == Decimal(str(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and bool(a == b)


def trimmed(text: Any) -> Any:
    """Return a text without the white space around it, None if nothing is left."""
    return re.sub(r"^[\s\ufeff]+|[\s\ufeff]+$", "", text) or None if isinstance(text, str) else text


def doubles(value: Any) -> Any:
    """Return arguments with all numbers as JavaScript reads them."""
    if isinstance(value, dict):
        return {key: doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(doubles, value))
    return float(value) if type(value) in (int, float, Decimal) else value


def only_adds_nulls(ours: Any, theirs: Any) -> bool:
    """Return whether the second is the first with more keys that have null."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        added = theirs.keys() - ours.keys()
        kept = ours.keys() <= theirs.keys() and all(only_adds_nulls(ours[key], theirs[key]) for key in ours)
        return kept and all(theirs[key] is None for key in added)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(only_adds_nulls, ours, theirs))
    return equal(ours, theirs)


def same_arguments(ours: list[Any], theirs: list[Any], forgive: frozenset[str]) -> set[str] | None:
    """Compare the arguments of all calls. One forgiveness may explain a difference."""
    if equal(ours, theirs):
        return set()
    if "ROUNDED_INTEGERS" in forgive and equal(doubles(ours), theirs):
        return {"ROUNDED_INTEGERS"}
    return {"ADDED_NULLS"} if "ADDED_NULLS" in forgive and only_adds_nulls(ours, theirs) else None


def same_text(ours: Any, theirs: Any, dropped: str, forgive: frozenset[str]) -> set[str] | None:
    """Compare what was said or thought. One forgiveness may explain a difference."""
    if equal(ours, theirs):
        return set()
    if "OUTER_WHITESPACE" in forgive and equal(trimmed(ours), trimmed(theirs)):
        return {"OUTER_WHITESPACE"}
    return {dropped} if dropped in forgive and theirs is None else None


def same_id(ours: Any, theirs: Any, pairs: Pairs, forgive: frozenset[str]) -> set[str] | None:
    """Compare two ids. With `RENAMED_TOOL_IDS` each id has one new name, and each name one id."""
    others = [pair for pair in pairs if (pair[0] == ours) != (pair[1] == theirs)]
    if "RENAMED_TOOL_IDS" not in forgive or None in (ours, theirs):
        return set() if ours == theirs else None
    if others or (ours != theirs and (ours, theirs) not in pairs):
        return None
    return {"RENAMED_TOOL_IDS"} if ours != theirs else set()


def same(ours: Message, theirs: Message, forgive: frozenset[str], pairs: Pairs) -> set[str] | None:
    """Return what was forgiven for two messages to be the same, None if they differ."""
    a, b = calls(ours), calls(theirs)
    names = [None if m["role"] == "assistant" else m.get("name") for m in (ours, theirs)]
    fixed = [(m["role"], [c["function"]["name"] for c in calls(m)]) for m in (ours, theirs)]
    if not equal(*fixed) or not equal(*names):
        return None
    spoken = forgive if ours["role"] == "assistant" else frozenset[str]()
    kept = a and all(
        x.get("id") is not None and x.get("id") == y.get("id") for x, y in zip(a, b, strict=True)
    )
    found = [
        same_text(said(ours), said(theirs), "DROPPED_CONTENT" if kept else "", spoken),
        same_text(thought(ours), thought(theirs), "DROPPED_REASONING", spoken),
        same_arguments(list(map(arguments, a)), list(map(arguments, b)), forgive),
    ]
    for x, y in zip(a, b, strict=True):
        known = x.get("id") in [pair[0] for pair in pairs] or y.get("id") in [pair[1] for pair in pairs]
        pairs += [] if known or None in (x.get("id"), y.get("id")) else [(x.get("id"), y.get("id"))]
        found.append(same_id(x.get("id"), y.get("id"), pairs, forgive))
    found.append(same_id(ours.get("tool_call_id"), theirs.get("tool_call_id"), pairs, forgive))
    calls_differ = {"ROUNDED_INTEGERS", "ADDED_NULLS", "RENAMED_TOOL_IDS"}
    forgiven = set[str]().union(*[one or () for one in found])
    if None in found or len(calls_differ & forgiven) > 1:  # one forgiveness for all calls of a message
        return None
    return forgiven | spelled(ours, theirs)


# --- how it was written --------------------------------------------------------------------------------


def exact(value: Any, *without: str) -> str:
    """Return data as one text, which differs where they are written differently but for the order of keys."""
    if without:
        value = {key: item for key, item in value.items() if key not in without}
    return json.dumps(value, sort_keys=True)


def beside(message: Message) -> list[Any]:
    """Return what calls have besides id, name and arguments, and whether they are in a list."""
    listed = [isinstance(message["tool_calls"], list)] if calls(message) else []
    return [
        listed,
        *((exact(c, "id", "function"), exact(c["function"], "name", "arguments")) for c in calls(message)),
    ]


def parts(message: Message) -> list[Message]:
    """Return the parts of a content that is a list."""
    return message["content"] if isinstance(message.get("content"), list) else []


def beside_text(part: Message) -> str:
    """Return what a text part has beside its text."""
    found = {key: value for key, value in part.items() if value is not None}
    return exact(found, "type", "text") if part["type"] == "text" else "{}"


def listed_thoughts(message: Message) -> list[Any]:
    """Return the reasoning that is no text, and where it stands."""
    named = [
        exact(message[name])
        for name in ("reasoning", "reasoning_content")
        if isinstance(message.get(name), list)
    ]
    return [
        *named,
        *((place, exact(part)) for place, part in enumerate(parts(message)) if part in thinking(message)),
    ]


def spelled(ours: Message, theirs: Message) -> set[str]:
    """Return in which ways two messages that say the same are written differently."""
    both = (ours, theirs)
    objects = [(ours, theirs, IDENTITY), *((x, y, (*x, *y)) for x, y in zip(*map(parts, both), strict=False))]
    for x, y in zip(*map(calls, both), strict=True):
        objects += [(x, y, ("id",)), (x["function"], y["function"], ("arguments",))]
    texts = [text_or_parts(without_thinking(m)) for m in both]
    thoughts = [[m.get(name) for name in ("reasoning", "reasoning_content")] for m in both]
    lists = [m.get("tool_calls") for m in both]
    respects: dict[str, Any] = {
        "TEXT_PART": lambda m: isinstance(m.get("content") or None, list),
        "ARGUMENTS": lambda m: exact([c["function"].get("arguments") for c in calls(m)]),
        "CALL_KEYS": beside,
        "REASONING_PARTS": listed_thoughts,
        "OTHER_KEYS": lambda m: (
            exact(m, *IDENTITY),
            [] if m["role"] != "assistant" or m.get("name") is None else [exact(m["name"])],
            [keys for keys in map(beside_text, parts(m)) if keys != "{}"],
        ),
        "MEDIA": lambda m: exact([part for part in parts(m) if medium(part)]),
    }
    found = {name for name, respect in respects.items() if respect(ours) != respect(theirs)}
    blank = {
        "ABSENT": any((k in a) != (k in b) and a.get(k) is b.get(k) for a, b, keys in objects for k in keys),
        "EMPTY_CONTENT": texts[0] != texts[1] and all(one in (None, "", []) for one in texts),
        "REASONING_NAME": all(map(any, thoughts))
        and [list(map(bool, m)) for m in thoughts[:1]] != [list(map(bool, m)) for m in thoughts[1:]],
        "EMPTY_REASONING": any(a != b and not a and not b for a, b in zip(*thoughts, strict=True)),
        "EMPTY_CALLS": not lists[1] and exact(lists[0]) != exact(lists[1]),
    }
    return found | {name for name, differs in blank.items() if differs}


def same_conversation(
    ours: Sequence[Message], theirs: Sequence[Any], policy: Policy
) -> tuple[set[str], Pairs] | None:
    """Return what was forgiven for messages to begin a conversation, and the ids of calls; else None."""
    forgiven, pairs = set[str](), Pairs()
    for stored, raw in zip(ours, theirs, strict=False):
        found = same(stored, plain(raw), frozenset(names(policy.forgive)), pairs)
        if found is None or any(
            exact(stored.get(key)) != exact(plain(raw).get(key)) for key in policy.further_keys
        ):
            return None
        forgiven |= found | (set() if isinstance(raw, Mapping) else {"OBJECT"})
    return (forgiven, pairs) if len(ours) <= len(theirs) else None


def with_stored_ids(messages: Sequence[Message], pairs: Pairs) -> list[Message]:
    """Return a conversation with the stored ids of its calls; a new id that is a stored one gets another."""
    stored = {new: old for old, new in pairs}
    for old, new in pairs:
        other = new
        while old not in stored and other in dict(pairs):
            other = dict(pairs)[other]
        stored.setdefault(old, other)
    return [
        m
        | ({"tool_call_id": stored.get(m["tool_call_id"], m["tool_call_id"])} if "tool_call_id" in m else {})
        | (
            {"tool_calls": [c | {"id": stored.get(c.get("id"), c.get("id"))} for c in calls(m)]}
            if calls(m)
            else {}
        )
        for m in messages
    ]
