"""Read a request's fields; errors name those that have a wrong type or cannot be translated.

Clients send more fields than an engine has a use for. A field that is not known changes nothing here: it is
accepted and noted in `Ignored`. A sampling argument that cannot be honoured, or a name that is nearly one, is
an error, because the client would get other samples than it asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any, Self

import attrs

from tito_io.client import sampling
from tito_io.fields import Fields, json_kind
from tito_io.thinking import under_all_names, with_effort

from .protocol import UntranslatableError

ENGINE_ARGUMENTS = frozenset(
    (
        *("allowed_token_ids", "bad_words", "cache_salt", "chat_template_kwargs", "frequency_penalty"),
        *("ignore_eos", "logit_bias", "min_p", "min_tokens", "no_stop_trim", "presence_penalty", "priority"),
        *("repetition_penalty", "seed", "stop_regex", "stop_token_ids", "structured_outputs", "temperature"),
        *("thinking_token_budget", "top_k", "top_p"),
    )
)
"""Sampling arguments that engines know, under the same name in every dialect; they are passed on."""

NO_EFFECT = frozenset(
    (
        *("cache_control", "inference_geo", "max_tool_calls", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "safety_identifier", "service_tier", "store", "stream_options", "user"),
        *("speed", "user_profile_id", "workspace_id", "reasoning.generate_summary", "reasoning.summary"),
    )
)
"""Fields that change nothing about an answer where an API has no other use for them: bookkeeping, billing,
hints to caches. `max_tool_calls` is about tools that a server runs. No summaries are made: reasoning is
shown in full."""
UNHONOURED = frozenset(
    (
        *("add_special_tokens", "best_of", "chat_template", "documents", "echo", "input_embeds", "input_ids"),
        *("length_penalty", "logits_processors", "mirostat", "mirostat_eta", "mirostat_tau"),
        *("mm_processor_kwargs", "prompt_embeds", "prompt_token_ids", "repeat_penalty", "sampling_params"),
        *("suffix", "tfs_z", "top_a", "truncate_prompt_tokens", "typical_p", "use_beam_search"),
    )
)
"""Further fields of engines that change the prompt or what is sampled."""
HARMLESS = frozenset(
    (
        *("custom_labels", "extra_body", "metadata", "reasoning_format", "request_id", "verbosity"),
        *("return_hidden_states", "top_logprobs_num", "skip_special_tokens", "spaces_between_special_tokens"),
    )
)
"""Names that change no sample, although they are, or nearly are, sampling arguments.

Two of SGLang's ask for more in an answer than any dialect has a place for. The last two say how ids are
decoded to text; Miles' driver gives its agents the first of them
(`build_chat_request_kwargs` in `miles/rollout/generate_hub/agentic_tool_call.py`).
"""
SAMPLING = frozenset((*sampling.NAMES, *UNHONOURED)) - NO_EFFECT - HARMLESS
PROMPTING = frozenset(
    (
        *("contents", "enable_thinking", "input", "instructions", "messages", "previous_response_id"),
        *("reasoning", "reasoning_effort", "response_format", "system", "text", "thinking", "tool_choice"),
        *("tools",),
    )
)
"""Fields of which prompts are made, in any API: of one that has such a field, a name that is nearly its name
is an error, too."""
CLOSE = 0.8
"""How alike a name and a sampling argument are, from 0 to 1, if one is the other misspelled."""
LONGEST = 64
"""Longer names are no misspelled sampling arguments; comparing and keeping them would cost too much."""
MOST_NAMES = 64
"""How many fields without effect a body may have, and how many names are noted of one request."""
FUNCTIONS = ("function", "functionDeclarations")
"""What APIs declare functions with: a tool's type, or a field of it."""
INDEX = re.compile(r"\[\d+\]")

KINDS: Mapping[type, str] = {
    bool: "true or false",
    dict: "an object",
    int: "a whole number",
    list: "a list",
    str: "a string",
}


def in_json(value: object) -> str:
    """Return a value as clients write it, but for strings: they have single quotes in errors.

    >>> in_json(True), in_json("low"), in_json({"a": None})
    ('true', "'low'", '{"a": null}')
    """
    return repr(value) if isinstance(value, str) else json.dumps(value, default=str)


def nearest(name: str, candidates: Collection[str]) -> str | None:
    """Return which of some names another one nearly is, in any case of letters; None where it is near none.

    >>> nearest("metdata", ("metadata", "model")), nearest("prompt", ("metadata", "model"))
    ('metadata', None)
    """
    spelled = {one.lower(): one for one in candidates}
    close = get_close_matches(name[:LONGEST].lower(), spelled, n=1, cutoff=CLOSE)
    return spelled[close[0]] if close else None


@attrs.frozen(eq=False)  # so that answers can be kept for each
class ApiNames:
    """The names of the fields of one object of an API.

    Attributes:
        known: Those that are read.
        written: Where this API has what others call by a name, such as `text.format` for `response_format`.
        spell: Writes a name as this API does.

    >>> names = ApiNames(frozenset(("temperature",)), {"stop": "stop_sequences"})
    >>> names.unhonoured("temprature"), names.unhonoured("stop_sequence"), names.unhonoured("stop")
    ("did you mean 'temperature'?", "did you mean 'stop_sequences'?", 'write stop_sequences')
    >>> names.unhonoured("best_of"), names.unhonoured("client_metadata")
    ('leave it out', None)
    """

    known: frozenset[str]
    written: Mapping[str, str] = attrs.field(factory=dict)
    spell: Callable[[str], str] = str

    def unhonoured(self, name: str) -> str | None:
        """Return what to do about a field that is, or nearly is, a sampling argument; None for another."""
        if len(name) > LONGEST or name in NO_EFFECT or name in HARMLESS:
            return None
        return _advice(self, name)

    def meant(self, name: str) -> str:
        """Return what another API's name, or a sampling argument's, is here."""
        return self.written.get(name) or (name if name in self.known else self.spell(name))


@lru_cache(1024)
def _advice(names: ApiNames, name: str) -> str | None:
    if name in names.written:
        return f"write {names.written[name]}"
    if name in SAMPLING or name in sampling.ELSEWHERE:
        return sampling.ELSEWHERE.get(name, "leave it out")
    own = (one.partition(".")[0] for one in names.written.values())
    close = nearest(name, {*SAMPLING, *names.written, *own, *(PROMPTING & names.known)})
    if close is None:
        return None
    meant = names.meant(close)
    return "leave it out" if meant == name else f"did you mean {meant if ' ' in meant else repr(meant)}?"


@attrs.frozen
class Ignored:
    """The parts of a request that are accepted without effect.

    Attributes:
        strict: Whether such a thing is an error instead.
        ignoring: Names that are accepted however strict the reading is.
        names: Paths of fields without indexes, such as `tools[].input_examples`.
    """

    strict: bool = False
    ignoring: Collection[str] = ()
    names: set[str] = attrs.field(factory=set)

    def add(self, path: str, why: str, instead: str, name: str = "") -> None:
        """Note a field or a part of the request, under its path or a `name`.

        Raises `UntranslatableError` if the reading is strict.

        >>> ignored = Ignored()
        >>> ignored.add("tools[3].input_examples", "is not known", "leave it out")
        >>> ignored.names
        {'tools[].input_examples'}
        """
        name = name or INDEX.sub("[]", path)
        if self.strict and name not in self.ignoring:
            raise UntranslatableError(path, why, instead)
        self.note(name)

    def note(self, name: str) -> None:
        """Note what is accepted however strict the reading is."""
        if len(self.names) < MOST_NAMES:
            self.names.add(name)

    def listed(self) -> tuple[str, ...]:
        """Return the names in order."""
        return tuple(sorted(self.names))


@attrs.frozen
class RequestFields(Fields):
    """A request's body or an object in it.

    Attributes:
        values: The object itself.
        path: Where the object stands in the request.
        ignored: What of the whole request is accepted without effect.
    """

    ignored: Ignored = attrs.field(factory=Ignored, eq=False, repr=False)

    @classmethod
    def of_body(cls, body: object, ignoring: Collection[str], *, strict: bool = False) -> Self:
        """Return a body without its nulls and the fields to ignore.

        >>> RequestFields.of_body({"model": "m", "user": None}, ()).values
        {'model': 'm'}
        """
        if not isinstance(body, Mapping):
            raise UntranslatableError("body", f"is {json_kind(body)}", "send a JSON object")
        given = {name: value for name, value in body.items() if value is not None}
        read = cls({n: v for n, v in given.items() if n not in ignoring}, ignored=Ignored(strict, ignoring))
        for name in given.keys() & set(ignoring):
            read.ignored.note(name)
        return read

    def inner(self, values: Mapping[str, Any], path: str) -> Self:
        """Return the reader of an object inside this one."""
        return type(self)(values, path, self.ignored)

    def missing(self, path: str, kind: type) -> Exception:
        """Return the error for a missing field."""
        return UntranslatableError(path, "is missing", f"give {KINDS[kind]}")

    def wrong_type(self, path: str, kind: type, value: object) -> Exception:
        """Return the error for a field of another type."""
        return UntranslatableError(path, f"is {in_json(value):.60}", f"give {KINDS[kind]}")

    def text_or_list(self, name: str, *, required: bool = False) -> str | list[Self]:
        """Return a text, or a list of objects; an empty list where it is missing and not `required`."""
        value = self.values.get(name)
        if value is None or isinstance(value, str | list):
            return value if isinstance(value, str) else self.nested_list(name, required=required)
        raise UntranslatableError(self.at(name), f"is {json_kind(value)}", "give a string or a list")

    def flag(self, name: str) -> bool:
        """Return a field that is true or false; false where it is missing."""
        return self.optional(name, bool) or False

    def check_body(self, names: ApiNames) -> None:
        """Look at the fields of a body that are not known; raises an error for sampling arguments."""
        others = self._others(names.known)
        if len(others) > MOST_NAMES:
            why = f"has {len(others)} fields that are not known, and at most {MOST_NAMES} are accepted"
            raise UntranslatableError("body", why, "leave them out")
        for name in others:
            instead = names.unhonoured(name)
            if instead is not None:
                sampled = "changes what is sampled, and cannot be honoured here"
                elsewhere = name in names.written or instead.startswith("write ")
                why = "has another name or place in this API" if elsewhere else sampled
                raise UntranslatableError(self.at(name), why, instead)
            if name in NO_EFFECT:
                self.ignored.note(name)
            else:
                self._ignore(name)

    def check_names(self, names: Collection[str]) -> None:
        """Accept other fields than `names` without effect."""
        for name in self._others(names)[:MOST_NAMES]:  # more are not noted
            self._ignore(name)

    def check_choices(self, *names: str) -> None:
        """Accept other fields than `names`, which change what is sampled, but for misspelt ones."""
        self.check_spelling(*names)
        self.check_names(names)

    def check_spelling(self, *names: str) -> None:
        """Raise an error for a field whose name is nearly one of `names`."""
        for name in self._others(names)[:MOST_NAMES]:
            meant = nearest(name, names)
            if meant is not None:
                raise UntranslatableError(self.at(name), "is not known", f"did you mean {meant!r}?")

    def _others(self, names: Collection[str]) -> list[str]:
        """Return the fields that are not in `names`; nulls and empty lists are no fields."""
        others = (name for name in self.values if name not in names)
        return sorted(name for name in others if self.values[name] not in (None, []))

    def _ignore(self, name: str) -> None:
        self.ignored.add(self.at(name), "is not known here, and would have no effect", "leave it out")

    def expect_value(self, name: str, allowed: Collection[Any], instead: str) -> None:
        """Accept another value than those in `allowed` without effect."""
        if not self._is_allowed(name, allowed):
            self.ignored.add(self.at(name), f"{in_json(self.values[name]):.60} has no effect here", instead)

    def check_value(self, name: str, allowed: Collection[Any], instead: str) -> None:
        """Raise an error if a field has another value than those in `allowed`; it may be missing."""
        if not self._is_allowed(name, allowed):
            why = f"{in_json(self.values[name]):.60} cannot be honoured"
            raise UntranslatableError(self.at(name), why, instead)

    def _is_allowed(self, name: str, allowed: Collection[Any]) -> bool:
        value = self.values.get(name)
        return value is None or any(value == one and type(value) is type(one) for one in allowed)

    def sampling(self, template_args: Mapping[str, Any], **renamed: Any) -> dict[str, Any]:
        """Return the engine's sampling arguments, and those that the dialect has another name for.

        `template_args` are further arguments of the chat template; those that the client gave itself win. A
        switch for reasoning comes under all names that templates have for it (`tito_io.thinking`).

        >>> RequestFields({"chat_template_kwargs": {"a": 1}, "n": 2}).sampling({"a": 2, "b": 3}, max_tokens=9)
        {'chat_template_kwargs': {'a': 1, 'b': 3}, 'max_tokens': 9}
        """
        found = {name: value for name, value in self.values.items() if name in ENGINE_ARGUMENTS}
        own = self.nested("chat_template_kwargs").values
        args = with_effort({**under_all_names(template_args), **under_all_names(own)})
        if args:
            found["chat_template_kwargs"] = args
        return {**found, **renamed}


def drop_tool(tool: RequestFields, kind: str) -> None:
    """Accept without effect a tool that cannot be offered as a function; `kind` is its type.

    Raises `UntranslatableError` for a function that is declared otherwise than this API does.
    """
    if nearest(kind, FUNCTIONS) is not None:
        why = f"{kind!r:.60} is, or nearly is, what other APIs declare a function with"
        raise UntranslatableError(tool.path, why, "declare functions in the form of this API")
    why = f"a tool of type {kind!r:.60} cannot be offered to this model"
    instead = "declare functions, which the client runs"
    tool.ignored.add(tool.at("type"), why, instead, name=f"tools[type={kind:.60}]")
