"""Change a conversation as an engine does before its chat template sees it: the one place that does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Any, Self

from attrs import field, frozen

from tito_core import TemplateRefused
from tito_io.families.template_values import normalized
from tito_io.fields import json_kind

from .message_rules import Absent, Arguments, Developer, LastTurn, MessageRules, NoParts
from .parts import Plain, joined, ordered, template_parts, without_billing
from .template_traits import (
    reads_argument_objects,
    refuses_late_systems,
    refuses_two_users,
    takes_lists,
    writes_argument_objects,
    writes_argument_texts,
)


@frozen(eq=False)
class Preparation:
    """The rules of an engine for one template.

    Attributes:
        rules: The rules.
        source: The template's text.
        lists: Whether the engine takes the template for one of lists of parts.
        wraps: Whether texts become lists, too.
        keeps_texts: Whether the arguments of calls stay texts.
    """

    rules: MessageRules
    source: str = field(repr=False)
    lists: bool
    wraps: bool
    keeps_texts: bool

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, rules: MessageRules, source: str) -> Self:
        """Find out what the engine finds out about a template."""
        return cls(
            rules=rules,
            source=source,
            lists=takes_lists(source, rules.lists),
            wraps=takes_lists(source, rules.wraps),
            keeps_texts=_keeps_texts(source, rules.arguments),
        )

    def tools(self, tools: Sequence[Plain] | None) -> list[Plain] | None:
        """Return what the template gets of `tools`."""
        return None if tools is None else [self._tool(one) for one in tools]

    def _tool(self, tool: Plain) -> Plain:
        function = tool.get("function")
        if self.rules.tools is None or not isinstance(function, dict):
            return tool
        if self.rules.defers and function.get("defer_loading") is None:
            function = {**function, "defer_loading": tool.get("defer_loading")}
        shown = ordered(function, self.rules.tool_functions)
        whole = {"type": "function", **tool, "function": shown}
        return shown if self.rules.bare_tools else ordered(whole, self.rules.tools)

    def messages(self, messages: Sequence[Plain], *, speaking: bool = False) -> list[Plain]:
        r"""Return what the template gets of `messages`, which are not changed.

        `speaking` is whether the model is to speak next. Raises `TemplateRefused` for what the engine
        rejects, with the path of the value.

        >>> from tito_io.families.preprocessing.engines import VLLM
        >>> result = {"role": "tool", "content": [{"type": "text", "text": one} for one in ("5", "6")]}
        >>> Preparation.of(VLLM, "{{ messages[0].content }}").messages([result])
        [{'role': 'tool', 'content': '5\n6'}]
        """
        if self.rules.messages is not None:
            messages = [self._with_role(one, f"messages[{index}]") for index, one in enumerate(messages)]
        if self.rules.moves_systems and refuses_late_systems(self.source):
            messages = _with_moved_systems(messages, merges=refuses_two_users(self.source))
        found = [self._message(one, f"messages[{index}]") for index, one in enumerate(messages)]
        if any(one.get("role") == "developer" for one in messages):
            found = self._with_developers(found)
        if self.rules.last_turn is LastTurn.USER and speaking and found:
            found[-1] = _as_user(found[-1])
        return found

    def _with_role(self, message: Plain, path: str) -> Plain:
        """Return a message with its role as the engine writes it."""
        role = message.get("role")
        if not isinstance(role, str):
            kind = json_kind(role) if "role" in message else "missing"
            raise TemplateRefused(f"{path}.role is {kind}: {self.rules.engine} takes a string there")
        lower = self.rules.lower_roles and role.lower() != "user"
        return {**message, "role": role.lower()} if lower else message

    def _message(self, message: Plain, path: str) -> Plain:
        role = message.get("role")
        found = {**message, **self._content(message, path)}
        if role == "assistant":
            found = self._thought({**found, **self._calls(found, path)})
        keys = self.rules.messages
        if keys is None:
            return normalized(found)
        shown = ordered(found, keys.get(str(role), keys[""]))
        if self.rules.lists_last and self.lists and isinstance(message.get("content"), list | tuple):
            shown["content"] = shown.pop("content")
        return shown

    def _content(self, message: Plain, path: str) -> Plain:
        """Return the content of a message under its key; nothing where it stays as it is."""
        content, role, rules = message.get("content"), message.get("role"), self.rules
        if content is None:
            if "content" in message and str(role) in rules.refuses_null:
                raise TemplateRefused(f"{path}.content is null: {rules.engine} takes a text or a list there")
            lists = self.lists and (role != "tool" or rules.result_separator is None)
            empty = {Absent.EMPTY: [] if lists else "", Absent.EMPTY_TEXT: self._wrapped("")}
            return {"content": empty[rules.absent]} if rules.absent in empty else {}
        if rules.separator is None:
            return {}
        if not isinstance(content, str | list | tuple):
            kind = json_kind(content)
            raise TemplateRefused(f"{path}.content is {kind}: {rules.engine} takes a text or a list of parts")
        if role == "system" and rules.billing_line:
            content = without_billing(content)
        return {"content": self._shown(content, role, f"{path}.content")}

    def _shown(self, content: str | Sequence[Any], role: Any, path: str) -> Any:
        """Return a content as the template takes it."""
        rules, results = self.rules, self.rules.result_separator if role == "tool" else None
        if isinstance(content, str):
            return self._wrapped(content) if results is None else content
        if not content and rules.no_parts is not NoParts.JOINED:
            return [] if rules.no_parts is NoParts.LIST else self._wrapped("")
        parts = template_parts(content, rules, path)
        if rules.names_tools and not self.lists:
            parts = [_named(one) for one in parts]
        texts = all(one.get("type") == "text" for one in parts)
        if texts and (results is not None or not self.lists):
            separator = rules.separator if results is None else results
            skips = {"skips_empty": rules.skips_empty and not self.lists, "skips_first": rules.skips_first}
            return joined(parts, separator or "", **skips)
        if not (self.lists or rules.mixed):
            raise TemplateRefused(f"{path} has media, and {rules.engine} gives this template texts alone")
        return parts

    def _wrapped(self, text: str) -> Any:
        return [{"type": "text", "text": text}] if self.wraps else text

    def _calls(self, message: Plain, path: str) -> Plain:
        """Return the calls of an assistant's message under their key; nothing where they stay as they are."""
        calls = message.get("tool_calls")
        if not isinstance(calls, list | tuple) or self.rules.calls is None:
            return {}
        shown = [self._call(one, f"{path}.tool_calls[{index}]") for index, one in enumerate(calls)]
        return {"tool_calls": shown if shown or self.rules.keeps_no_calls else None}

    def _call(self, call: Any, path: str) -> Plain:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            if self.rules.messages is None and isinstance(call, dict):
                return call
            raise TemplateRefused(
                f"{path} has no function: {self.rules.engine} takes calls of functions alone"
            )
        arguments = self._arguments(function.get("arguments"), f"{path}.function.arguments")
        shown = ordered({**function, "arguments": arguments}, self.rules.functions)
        return ordered({**call, "function": shown}, self.rules.calls)

    def _arguments(self, given: Any, path: str) -> Any:
        """Return the arguments of a call as the template gets them."""
        rule = self.rules.arguments
        if self.keeps_texts:
            return _spelled(given, path) if isinstance(given, dict) else given
        value = self._parsed(given)
        if isinstance(value, dict) or (rule is Arguments.JSON_IF_READ and value is not None):
            return value
        if rule is Arguments.OBJECT_OR_EMPTY:
            return {}
        if rule in (Arguments.OBJECT_OR_REFUSED, Arguments.JSON_IF_READ) and given is not None:
            engine = self.rules.engine
            raise TemplateRefused(f"{path} is {given!r:.60}: {engine} takes the text of a JSON object")
        return given

    def _parsed(self, given: Any) -> Any:
        try:
            return self.rules.parses(given) if isinstance(given, str) else given
        except (ValueError, RecursionError):
            return None

    def _thought(self, message: Plain) -> Plain:
        """Return an assistant's message with its reasoning under the names that the template gets."""
        names = self.rules.reasoning
        thought = next((message[key] for key in names if message.get(key) is not None), None)
        if thought is None:
            return message
        if self.rules.think_tags and thought and "reasoning_content" not in self.source:
            written = f"<think>{thought}</think>{message.get('content') or ''}"
            return {**message, **dict.fromkeys(names), "content": written}
        return {**message, **dict.fromkeys(names), **dict.fromkeys(self.rules.reasoning_as, thought)}

    def _with_developers(self, messages: list[Plain]) -> list[Plain]:
        """Return messages with those of developers as the template gets them."""
        rule = self.rules.developer
        if rule is Developer.SYSTEM and "<|channel|>" not in self.source:
            return [_as_system(one) for one in messages]
        named = '"developer"' in self.source or "'developer'" in self.source
        return _with_one_system_text(messages) if rule is Developer.MERGED and not named else messages


def _keeps_texts(source: str, rule: Arguments | None) -> bool:
    """Return whether arguments stay texts for a template."""
    if rule is Arguments.JSON_IF_READ:
        return not reads_argument_objects(source)
    if rule is Arguments.OBJECT_IF_WRITTEN:
        return writes_argument_texts(source) and not writes_argument_objects(source)
    if rule is Arguments.OBJECT_UNLESS_STRING:
        return "arguments is string" in source and writes_argument_texts(source)
    return False


def _with_one_system_text(messages: list[Plain]) -> list[Plain]:
    """Return messages with all system texts as one at the beginning, developers' among them."""
    named = [_as_system(one) for one in messages]
    places = [place for place, one in enumerate(named) if one["role"] == "system"]
    if places == [0]:
        return named
    texts = filter(None, (_text(named[place]["content"]) for place in places))
    return [
        {"role": "system", "content": "\n\n".join(texts)},
        *(one for one in named if one["role"] != "system"),
    ]


def _with_moved_systems(messages: Sequence[Plain], *, merges: bool) -> list[Plain]:
    """Return messages with the leading system texts as one and later ones as the user's.

    `merges` is whether messages of the user that follow one another become one.
    """
    lead = list(takewhile(lambda one: one.get("role") == "system", messages))
    text = "\n\n".join(_text(one.get("content") or "") for one in lead)
    found = [{"role": "system", "content": text if len(lead) > 1 else lead[0].get("content")}] if lead else []
    for one in messages[len(lead) :]:
        moved = {"role": "user", "content": one.get("content")} if one.get("role") == "system" else one
        if merges and found and moved.get("role") == found[-1].get("role") == "user":
            found[-1] = {**found[-1], "content": _together(found[-1].get("content"), moved.get("content"))}
        else:
            found.append(moved)
    return found


def _together(first: Any, second: Any) -> Any:
    """Return two contents as one: two texts as one text, else all parts."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    parts = (
        [{"type": "text", "text": one}] if isinstance(one, str) else one or [] for one in (first, second)
    )
    return [part for one in parts for part in one]


def _as_system(message: Plain) -> Plain:
    if message.get("role") != "developer":
        return message
    return {key: value for key, value in {**message, "role": "system"}.items() if key != "tools"}


def _named(part: Plain) -> Plain:
    """Return a part, as the text of its name if it is a reference to a tool."""
    return {"type": "text", "text": part["name"] or ""} if part["type"] == "tool_reference" else part


def _spelled(arguments: Plain, path: str) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False)
    except ValueError as error:  # an integer with more digits than Python writes
        raise TemplateRefused(f"{path} cannot be written: {error}") from None


def _text(content: Any) -> str:
    """Return a system text; parts without a text, such as references to tools, have none."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple) or not all(isinstance(part, Mapping) for part in content):
        raise TemplateRefused(f"a system text is {content!r:.60}: give a text, or a list of parts")
    return joined([part for part in content if "text" in part], "\n", skips_empty=False)


def _as_user(message: Plain) -> Plain:
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, str):
        return message
    return {"role": "user", "content": content}
