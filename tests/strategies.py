"""Hypothesis strategies for conversations, steps and sampled ids, shared by the property tests.

Steps are prefixes of the prompt, in any order and among steps that nearly match, because faults of a matcher
show there. Completions end in every way in which engines end them. Messages come back in every form that
serializers give them.
"""

from __future__ import annotations

import copy
import json
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from pydantic import BaseModel, ConfigDict

from tests import oracle
from tito_core import Step
from tito_core.seams.seam import LONGER, OTHER, SHORT
from tito_core.testing.toys import TOYS, Message, Toy

T = TypeVar("T")
Chat = list[dict[str, Any]]
Draw = Callable[[SearchStrategy[Any]], Any]
"""The draw function of a composite strategy, or `data.draw`."""


def tries(share: float) -> settings:
    """Return settings for a test that needs a share of the profile's examples, or several times as many."""
    return settings(max_examples=max(1, round(settings().max_examples * share)))


class Choices:
    """A sequence of small choices, decoded from one drawn number, because each draw is expensive.

    The first option is the simplest one. The number 0 chooses it everywhere.

    >>> choices = Choices(7)
    >>> choices.pick("abc"), choices.pick("abc"), choices.pick("abc")
    ('b', 'c', 'a')
    """

    FACES = 2**24 - 1

    def __init__(self, number: int) -> None:
        """Start with a drawn number."""
        self._left = number

    def pick(self, options: Sequence[T]) -> T:
        """Return one of the options."""
        self._left, chosen = divmod(self._left, len(options))
        return options[chosen]

    def once_in(self, chance: int) -> bool:
        """Return True once in `chance` times."""
        return self.pick(range(chance)) == chance - 1

    def turned(self, items: Sequence[T]) -> list[T]:
        """Return the items in another cyclic order."""
        start = self.pick(range(max(len(items), 1)))
        return [*items[start:], *items[:start]]


CHOICES: SearchStrategy[Choices] = st.integers(0, Choices.FACES).map(Choices)
"""One strategy object for all: building strategies costs more than drawing from them."""


# --- words ----------------------------------------------------------------------------------------------

PLAIN_WORDS = ("a", "b", "ab", "ba", "aab", "hello", "a b")
TRICKY_WORDS = (
    "be quick /no_think",
    "",
    " ",
    "\n",
    "a\n",
    "\na",
    " a ",
    "None",
    "{}",
    "ünï✓",
    "🙂",
    "\u2028",
    "[0]",
    "abababab",
)
STAND_INS = (SHORT, f"What rhymes with {SHORT}", LONGER, SHORT.lower(), OTHER, "So.", "Hello.", "Be brief.")
"""The stand-in texts of the kernel's questions; real messages may have them too."""
SPECIALS = tuple(sorted({special for toy in TOYS for special in toy.tokenizer.specials}))
INJECTIONS = tuple(
    f"{before}{special}{after}" for special in SPECIALS for before, after in (("", ""), ("a", "b"))
)
"""Texts that spell a special token of some family: the tokenizer makes the real thing of them."""
WORDS = PLAIN_WORDS * 6 + TRICKY_WORDS * 2 + STAND_INS + INJECTIONS[::3]

CALL_IDS = ("callaaaa1", "callaaaa2", "callbbbb1")
ODD_CALL_IDS = ("call_1", "functions.f:0", "<|im_end|>", "c</s>", None)
CALL_NAMES = ("f", "get", "ab") * 5 + ("<|im_end|>", "</tool_call>", "a<|call|>b", "</s>")
ROLES = st.lists(
    st.sampled_from(("user", "system", "developer", "tool", "assistant")), min_size=1, max_size=3
)
KINDS = st.integers(0, 15)
TURNS = st.integers(1, 3)
ODD_ARGUMENTS = (
    "",
    "{",
    "[1]",
    "NaN",
    '{"a":1,"a":2}',
    '{"a": NaN}',
    '"text"',
    '{"a": "<|im_end|>"}',
    "a</tool_call>",
)
ARGUMENTS = ('{"a": 1}', '{"x":"b","a":[1,true,null]}', "{}", '{"q": "ab"}') * 4 + ODD_ARGUMENTS


def calls(draw: Draw, count: int) -> Chat:
    """Draw tool calls with different ids, arguments as OpenAI's wire has them: JSON text."""
    return [call(draw(CHOICES), index) for index in range(count)]


def call(choices: Choices, index: int) -> dict[str, Any]:
    """Return a tool call."""
    name, arguments = choices.pick(CALL_NAMES), choices.pick(ARGUMENTS)
    identity = choices.pick(ODD_CALL_IDS) if choices.once_in(12) else CALL_IDS[index]
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistants(draw: Draw, *, may_call: bool = True) -> dict[str, Any]:
    """Draw what a model answered: content, sometimes thinking, sometimes one or two calls."""
    choices = draw(CHOICES)
    message: dict[str, Any] = {"role": "assistant", "content": choices.pick(WORDS)}
    if choices.once_in(3):
        message["reasoning_content"] = choices.pick(WORDS)
    count = choices.pick((0, 0, 1, 1, 2)) if may_call else 0
    if count:
        message |= {"content": choices.pick((None, "", "a")), "tool_calls": calls(draw, count)}
    return message


def speech(choices: Choices, role: str = "user") -> dict[str, Any]:
    """Return a message with content only, which is sometimes in parts."""
    content, second_content = choices.pick(WORDS), choices.pick(WORDS)
    parts = [{"type": "text", "text": text} for text in (content, second_content)]
    return {"role": role, "content": choices.pick((*[content] * 8, parts[:1], parts))}


def result(choices: Choices, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a tool call."""
    found = {"role": "tool", "content": choices.pick(WORDS), "tool_call_id": call.get("id")}
    return found | ({"name": call["function"]["name"]} if choices.once_in(4) else {})


def environments(draw: Draw, toy: Toy, before: Mapping[str, Any]) -> Chat:
    """Draw what may follow an assistant message: the usual things, and now and then anything at all."""
    kind = draw(KINDS)
    if kind >= 14:
        return odd_environments(draw)
    called = before.get("tool_calls") or ()
    found = [result(draw(CHOICES), call) for call in called] if "tool" in toy.roles else []
    if not found or kind >= 10:
        found.append(speech(draw(CHOICES)))
    return found


def odd_environments(draw: Draw) -> Chat:
    """Draw one to three messages in an order that few templates take."""
    roles = draw(ROLES)
    stray = {"id": "callaaaa1", "function": {"name": "f"}}
    return [
        assistants(draw)
        if role == "assistant"
        else result(draw(CHOICES), stray)
        if role == "tool"
        else speech(draw(CHOICES), role)
        for role in roles
    ]


def conversations(draw: Draw, toy: Toy) -> Chat:
    """Draw a conversation that ends with what is new after the last of one to three assistant turns."""
    chat: Chat = [speech(draw(CHOICES), "system")] if "system" in toy.roles and draw(KINDS) >= 8 else []
    chat.append(speech(draw(CHOICES)))
    for _ in range(draw(TURNS)):
        chat.append(assistants(draw, may_call="tool" in toy.roles))
        chat += environments(draw, toy, chat[-1])
    return chat


# --- the same message, spelled differently --------------------------------------------------------------


class WireMessage(BaseModel):
    """A message as a client library hands it over."""

    model_config = ConfigDict(extra="allow")
    role: str
    content: Any = None
    refusal: str | None = None


@attrs.define
class AttrsMessage:
    """A message as a host's own value type."""

    role: str
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    reasoning_content: Any = None
    name: Any = None


def as_attrs(message: dict[str, Any]) -> Any:
    """Return the message as an attrs object where it has no key beyond those that one knows."""
    known = {field.name for field in attrs.fields(AttrsMessage)}
    return AttrsMessage(**message) if known >= message.keys() else message


def as_wire(message: dict[str, Any]) -> Any:
    """Return the message as a pydantic object."""
    return WireMessage(**message)


def reparsed(message: dict[str, Any]) -> Any:
    """Return the message after a trip over the wire."""
    return json.loads(json.dumps(message))


WRAPPERS: tuple[Callable[[dict[str, Any]], Any], ...] = (
    dict,
    dict,
    dict,
    reparsed,
    MappingProxyType,
    UserDict,
    as_attrs,
    as_wire,
)


def respelled(choices: Choices, message: Mapping[str, Any]) -> Any:
    """Return the same message as another serializer would write it.

    >>> respelled(Choices(0), {"role": "user", "content": "a"})
    {'role': 'user', 'content': 'a'}
    """
    rewritten = copy.deepcopy(dict(message))
    if choices.pick((True, False, False)):
        return rewritten
    content = rewritten.get("content")
    if isinstance(content, str) and choices.pick((False, True)):
        rewritten["content"] = [{"type": "text", "text": content}]
    if isinstance(content, list) and len(content) == 1 and choices.pick((False, True)):
        rewritten["content"] = content[0]["text"]
    if message["role"] == "assistant":
        _respell_assistant(choices, rewritten, empty=not content)
    rewritten |= {
        key: None
        for key in ("name", "tool_call_id", "refusal")
        if rewritten.get(key) is None and choices.once_in(4)
    }
    if choices.once_in(4):
        rewritten["x_cached"] = True
    keys = choices.turned(list(rewritten))
    return choices.pick(WRAPPERS)({key: rewritten[key] for key in keys})


def _respell_assistant(choices: Choices, rewritten: dict[str, Any], *, empty: bool) -> None:
    """Change what serializers change in an assistant message, in place."""
    if empty:
        rewritten["content"] = choices.pick((None, "", [{"type": "text", "text": ""}]))
        if choices.once_in(4):
            del rewritten["content"]
    thoughts = [rewritten.pop(name, None) for name in ("reasoning", "reasoning_content")]
    name = choices.pick(("reasoning_content", "reasoning"))
    if any(thoughts):
        rewritten[name] = thoughts[0] or thoughts[1]
    elif choices.pick((False, True)):
        rewritten[name] = choices.pick((None, ""))
    if rewritten.get("tool_calls"):
        rewritten["tool_calls"] = [
            respelled_call(choices, call, i) for i, call in enumerate(rewritten["tool_calls"])
        ]
    elif choices.pick((False, True)):
        rewritten["tool_calls"] = choices.pick((None, []))


def respelled_call(choices: Choices, call: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the same tool call as another serializer would write it."""
    function = call["function"]
    arguments = respelled_arguments(choices, function.get("arguments", ""))
    rewritten: dict[str, Any] = {"function": {"arguments": arguments, "name": function["name"]}}
    rewritten |= {key: value for key, value in call.items() if key != "function"}
    if choices.pick((False, True)):
        rewritten["index"] = index
    if choices.pick((False, True)):
        rewritten.pop("type", None)
    return rewritten


def respelled_arguments(choices: Choices, arguments: Any) -> Any:
    """Spell arguments as text or as an object, keys in another order, other spacing; leave odd ones alone."""
    try:
        oracle.object_in(arguments)
    except oracle.NotAnObject:
        return arguments
    plain = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    turned = {key: plain[key] for key in choices.turned(list(plain))}
    separators = choices.pick(((", ", ": "), (",", ":"), (" , ", " : ")))
    return choices.pick((arguments, turned, json.dumps(turned, separators=separators)))


# --- nearly the same message ------------------------------------------------------------------------------


def _edit_text(message: dict[str, Any], text: str) -> None:
    message["content"] = text


def _edit_role(message: dict[str, Any], text: str) -> None:
    message["role"] = "user" if message["role"] != "user" else "system"
    message["content"] = message.get("content") or text


def _edit_reasoning(message: dict[str, Any], text: str) -> None:
    message["reasoning"] = f"{message.pop('reasoning_content', '')}{text}."


def _edit_call_id(message: dict[str, Any], text: str) -> None:
    message["tool_call_id"] = f"{message.get('tool_call_id')}{text}."


def _edit_name(message: dict[str, Any], text: str) -> None:
    message["name"] = f"{message.get('name')}{text}."


def _edit_calls(message: dict[str, Any], text: str) -> None:
    message["tool_calls"] = [
        *(message.get("tool_calls") or ()),
        {"id": text, "function": {"name": "f", "arguments": ""}},
    ]


def _edit_arguments(message: dict[str, Any], text: str) -> None:
    for call in message.get("tool_calls") or ():
        call["function"]["arguments"] = json.dumps({"edited": text})


EDITS = (_edit_text, _edit_role, _edit_reasoning, _edit_call_id, _edit_name, _edit_calls, _edit_arguments)


def edited(choices: Choices, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message that differs in one place, now and then in none: the oracle tells which."""
    changed = copy.deepcopy(dict(message))
    choices.pick(EDITS)(changed, choices.pick(WORDS))
    return changed


# --- what an engine sampled ---------------------------------------------------------------------------------

ENDINGS = (
    "right",
    "right",
    "right",
    "any stop",
    "whole close",
    "close and opener",
    "cut",
    "cut at a close",
    "nothing",
)


def shown(toy: Toy, messages: Sequence[Message]) -> list[Message] | None:
    """Return the first presentation of a conversation that the template takes."""
    ways = (way for group in oracle.readings(messages) for way in group)
    return next((way for way in ways if oracle.rendering(toy, way) is not None), None)


def rendered(toy: Toy, messages: Sequence[Message]) -> list[int]:
    """Return the ids of a prompt, or a stand-in where the template refuses it."""
    taken = shown(toy, messages)
    return [3, 1, 4] if taken is None else toy(taken, add_generation_prompt=True)


def sampled_words(toy: Toy, messages: Sequence[Message], mask: int) -> list[int]:
    """Return ids for the last message of a conversation, or a stand-in where the template refuses it."""
    taken = shown(toy, messages)
    return [1, 5, 9] if taken is None else toy.sample(taken, mask=mask)


def completed(choices: Choices, toy: Toy, chat: Chat, position: int) -> tuple[list[int], bool]:
    """Return ids for the assistant message at `position`, and whether the turn was cut short."""
    ending, mask = choices.pick(ENDINGS), choices.pick(range(8))
    words = sampled_words(toy, chat[: position + 1], mask)
    if ending == "right":
        return ended(toy, words, right_stop(toy, chat, position)), False
    if ending == "any stop":
        return [*words, choices.pick((*toy.stop_ids, 999))], False
    if ending == "whole close":
        return [*words, *toy.suffix], choices.once_in(4)
    if ending == "close and opener":
        tails = oracle.true_tails(toy, chat, position + 1) or [()]
        return [*words, *tails[0][: len(toy.suffix) + 1]], False
    if ending == "nothing":
        return [], choices.once_in(2)
    kept = words[: choices.pick(range(len(words) + 1))]
    part = toy.suffix[: choices.pick(range(len(toy.suffix) + 1))] if ending == "cut at a close" else ()
    return [*kept, *part], not choices.once_in(5)


def right_stop(toy: Toy, chat: Chat, position: int) -> list[int]:
    """Return what the template itself would have written after the turn, up to the first stop."""
    tails = oracle.true_tails(toy, chat, position + 1)
    if not tails:
        return list(toy.stop_ids[:1])
    stops = [place for place, index in enumerate(tails[0][: len(toy.suffix)]) if index in toy.stop_ids]
    return list(tails[0][: 1 + min(stops, default=0)])


def ended(toy: Toy, words: list[int], stop: list[int]) -> list[int]:
    """Return words and their stop as a model samples them: the last word and a close's text may be one id."""
    try:
        return [*words[:-1], *toy.tokenizer.encode(toy.tokenizer.decode([*words[-1:], *stop]))]
    except ValueError:  # the words are stand-ins without a text
        return [*words, *stop]


# --- steps and the prompt that they meet ----------------------------------------------------------------


@attrs.frozen
class StitchInput:
    """Arguments of a stitch, and the toy template family that they belong to."""

    toy: Toy
    steps: list[Step]
    prompt: list[Any]
    key: str | None = None

    @property
    def suffix(self) -> tuple[int, ...]:
        """The family's own close."""
        return self.toy.suffix


def steps_at(draw: Draw, toy: Toy, chat: Chat, position: int, key: str | None = None) -> Step:
    """Draw the call that answered with the message at `position`, its history in some spelling."""
    messages = [respelled(draw(CHOICES), message) for message in chat[: position + 1]]
    ids, truncated = completed(draw(CHOICES), toy, chat, position)
    return Step(
        prompt=messages[:-1],
        completion=messages[-1:],
        prompt_ids=rendered(toy, chat[:position]),
        completion_ids=ids,
        truncated=truncated,
        key=key,
    )


NOISE = ("again", "edited", "edited", "longer", "whole", "split oddly", "other key")


def noise_steps(draw: Draw, toy: Toy, chat: Chat, key: str | None) -> Step:
    """Draw a step that looks like the others and should not be used, or only by its rules."""
    chosen = draw(CHOICES)
    kind, position = chosen.pick(NOISE), chosen.pick(range(len(chat)))
    if kind == "edited":
        place = chosen.pick(range(position + 1))
        changed = [*chat[:place], edited(draw(CHOICES), chat[place]), *chat[place + 1 :]]
        return steps_at(draw, toy, changed, position, key)
    if kind == "longer":
        longer = [*chat, assistants(draw), speech(draw(CHOICES)), assistants(draw)]
        return steps_at(draw, toy, longer, len(chat) + chosen.pick((0, 1, 2)), key)
    if kind == "whole":
        return steps_at(draw, toy, chat, len(chat) - 1, key)
    if kind == "other key":
        return steps_at(draw, toy, chat, position, f"not {key}")
    step = steps_at(draw, toy, chat, position, key)
    if kind == "split oddly":
        cut = chosen.pick(range(position + 2))
        return attrs.evolve(step, prompt=chat[:cut], completion=chat[cut : position + 1])
    return step


@st.composite
def stitch_inputs(draw: DrawFn, toys: Sequence[Toy] = TOYS) -> StitchInput:
    """Draw a family, a conversation, and steps that are prefixes of it, in any order and among noise."""
    toy = draw(st.sampled_from(toys))
    chat = conversations(draw, toy)
    chosen = draw(CHOICES)
    key = chosen.pick((None, None, "tools"))
    answered = [index for index, message in enumerate(chat) if message["role"] == "assistant"]
    kept = [index for index in answered if not chosen.once_in(5)]
    steps = [steps_at(draw, toy, chat, index, key) for index in kept]
    steps += [noise_steps(draw, toy, chat, key) for _ in range(chosen.pick((0, 0, 1, 2)))]
    prompt = [respelled(draw(CHOICES), message) for message in chat]
    return StitchInput(toy, chosen.turned(steps), prompt, key)


@st.composite
def tidy_stitch_inputs(draw: DrawFn, toys: Sequence[Toy] = TOYS) -> StitchInput:
    """Draw a conversation of which every turn was sampled to its right stop: the kernel often answers."""
    toy = draw(st.sampled_from(toys))
    chat = conversations(draw, toy)
    steps = []
    for index in [index for index, message in enumerate(chat) if message["role"] == "assistant"]:
        words = sampled_words(toy, chat[: index + 1], index)
        sampled = ended(toy, words, right_stop(toy, chat, index))
        prompt_ids = rendered(toy, chat[:index])
        steps.append(
            Step(
                prompt=chat[:index],
                completion=chat[index : index + 1],
                prompt_ids=prompt_ids,
                completion_ids=sampled,
            )
        )
    return StitchInput(toy, steps, chat)


ANY_INPUT = stitch_inputs()
TIDY_INPUT = tidy_stitch_inputs()
INPUT_OF = {toy.name: stitch_inputs((toy,)) for toy in TOYS}
TIDY_INPUT_OF = {toy.name: tidy_stitch_inputs((toy,)) for toy in TOYS}
"""One strategy object for each: building strategies costs more than drawing from them."""


MEDIA = (
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    {"type": "image"},
    {"type": "video", "video": "a.mp4"},
)


# --- anything that is JSON ------------------------------------------------------------------------------


def json_values() -> SearchStrategy[Any]:
    """Draw any small JSON value."""
    leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(allow_nan=False) | st.text(max_size=3)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
        max_leaves=4,
    )


def wild_messages() -> SearchStrategy[dict[str, Any]]:
    """Draw messages whose every value but the role may be any JSON at all."""
    calls_of_sorts = st.lists(
        json_values()
        | st.fixed_dictionaries(
            {"function": st.fixed_dictionaries({"name": json_values(), "arguments": json_values()})}
        ),
        max_size=2,
    )
    return st.fixed_dictionaries(
        {"role": st.sampled_from(("user", "assistant", "tool", "system", "critic"))},
        optional={
            "content": json_values() | st.lists(json_values(), max_size=2),
            "tool_calls": json_values() | calls_of_sorts,
            "tool_call_id": json_values(),
            "reasoning": json_values(),
            "reasoning_content": json_values(),
            "name": json_values(),
            "audio": json_values(),
        },
    )
