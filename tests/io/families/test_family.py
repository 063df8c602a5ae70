"""Text and ids of a model folder equal those of transformers, whatever the template and the messages."""

from __future__ import annotations

import json
from collections import OrderedDict, UserList
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import IntEnum, StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from tests.io.families.family_folder import (
    CONFIG,
    NOON,
    expected,
    freeze,
    load,
    reference,
    rendered,
    tiny_folder,
)
from tito_core import Extension, InputError, Rendered, TemplateRefused, TokenizeFn
from tito_io.families.family import Family

TEMPLATES = {
    file.stem: file.read_text() for file in sorted((Path(__file__).parent / "templates").glob("*.jinja"))
}
CHATML = TEMPLATES["chatml"]
CLOSED = "{% for m in messages %}{{ m.content }}<eos>{% endfor %}"

CASES = json.loads((Path(__file__).parent / "family_cases.json").read_text(encoding="utf-8"))
TOOLS: list[dict[str, Any]] = CASES["tools"]
CONVERSATIONS: dict[str, list[dict[str, Any]]] = CASES["conversations"]
USER = CONVERSATIONS["one"][0]
CALL = CONVERSATIONS["calls"][1]["tool_calls"][0]
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prompted": {"add_generation_prompt": True},
    "tools": {"tools": TOOLS, "add_generation_prompt": True},
    "no tools": {"tools": []},
    "documents": {"documents": [{"title": "t", "text": "x"}]},
    "arguments": {"enable_thinking": False, "effort": None, "nested": {"a": (1, 2)}, "bos_token": "<pad>"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {f"{name}__jinja": text for name, text in TEMPLATES.items()}
    return tiny_folder(tmp_path_factory.mktemp("folders") / "tiny", CHATML, **files)


@pytest.fixture(scope="module")
def families(folder: Path) -> dict[str, Family]:
    return {name: load(folder, f"{name}.jinja") for name in TEMPLATES}


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    """Older versions, which a release is tried with, too, leave a last message open in other ways."""
    pytest.importorskip("transformers", minversion="5.23")
    return reference(folder)


class Pair:
    """Both renderers, in an object that hypothesis does not print at length."""

    def __init__(self, families: dict[str, Family], tokenizer: Any) -> None:
        self.families = families
        self.tokenizer = tokenizer


@pytest.fixture(scope="module")
def pair(families: dict[str, Family], tokenizer: Any) -> Pair:
    return Pair(families, tokenizer)


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(monkeypatch.setattr)


@pytest.mark.parametrize("name", TEMPLATES)
def test_text_and_ids_equal_those_of_transformers(
    name: str, families: dict[str, Family], tokenizer: Any
) -> None:
    for messages in CONVERSATIONS.values():
        for options in OPTIONS.values():
            want = expected(tokenizer, messages, chat_template=TEMPLATES[name], **options)
            assert rendered(families[name], messages, **options) == want


def test_the_comparison_meets_both_answers(families: dict[str, Family]) -> None:
    made = [rendered(family, messages) for family in families.values() for messages in CONVERSATIONS.values()]
    assert made.count(None) > 20
    assert len(made) - made.count(None) > 100


text = st.text(
    st.sampled_from("aé漢 \n<>{}%|\"'\\") | st.characters(codec="utf-8"), max_size=12
) | st.sampled_from(["<eos>", "<think>a</think>b", "<|im_end|>\n", " "])
value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
call = st.fixed_dictionaries(
    {
        "id": text,
        "function": st.fixed_dictionaries({"name": text, "arguments": st.dictionaries(text, value) | text}),
    }
)
part = st.fixed_dictionaries({"type": st.just("text"), "text": text})
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
    optional={
        "content": text | st.none() | st.lists(part, max_size=2),
        "reasoning_content": text | st.none(),
        "reasoning": text,
        "thinking": text,
        "tool_calls": st.lists(call, max_size=2) | st.none(),
        "name": value,
    },
)


@given(
    name=st.sampled_from(sorted(TEMPLATES)),
    messages=st.lists(message, max_size=4),
    tools=st.none() | st.lists(st.dictionaries(text, value, max_size=2), max_size=2),
    options=st.fixed_dictionaries(
        {},
        optional={
            "add_generation_prompt": st.booleans(),
            "continue_final_message": st.sampled_from(
                [True, False, "content", "reasoning", "thinking", "name"]
            ),
            "effort": value,
        },
    ),
)
def test_any_messages_render_as_in_transformers(
    name: str,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    options: dict[str, Any],
    pair: Pair,
) -> None:
    want = expected(pair.tokenizer, messages, chat_template=TEMPLATES[name], tools=tools, **options)
    if want is not None and "CONTINUE_FINAL_MESSAGE_TAG" in want[0]:
        want = None  # a message printed twice: transformers leaves its mark in the text, which nobody wants
    assert rendered(pair.families[name], messages, tools=tools, **options) == want


TRIMMED = "{% for message in messages %}<|im_start|>{{ message.content | trim }}<|im_end|>\n{% endfor %}"
OPEN: dict[str, tuple[list[dict[str, Any]], bool | str]] = {
    "plain": ([USER, {"role": "assistant", "content": "so it"}], True),
    "trailing space": ([USER, {"role": "assistant", "content": "so it  \n"}], True),
    "empty": ([USER, {"role": "assistant", "content": ""}], True),
    "parts": ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]}], True),
    "several texts": (
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        True,
    ),
    "no text in parts": ([{"role": "user", "content": [{"type": "image"}]}], True),
    "reasoning": ([USER, {"role": "assistant", "content": "", "reasoning": "hm"}], "reasoning"),
    "reasoning of two names": ([USER, {"role": "assistant", "thinking": "a", "reasoning": "b"}], "thinking"),
    "nothing to continue": ([USER, {"role": "assistant", "tool_calls": [CALL]}], True),
    "unread field": ([{**USER, "name": "x"}], "name"),
    "a number": ([{**USER, "content": 3}], True),
    "repeated": (
        [USER, {"role": "assistant", "content": "so"}, {"role": "assistant", "content": "so"}],
        True,
    ),
}
READERS = {
    "chatml": CHATML,
    "trimming": TRIMMED,
    "dropping": "{% for message in messages[:-1] %}{{ message.content }}{% endfor %}",
    "changing": "{% for message in messages %}{{ message.content | upper }}{% endfor %}",
    "parts": "{% for part in messages[-1].content %}{{ part.text }}|{% endfor %}",
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", OPEN)
def test_an_open_last_message_ends_as_in_transformers(
    reader: str, case: str, folder: Path, tokenizer: Any
) -> None:
    messages, field = OPEN[case]
    (folder / "open.jinja").write_text(READERS[reader])
    want = expected(tokenizer, messages, chat_template=READERS[reader], continue_final_message=field)
    assert rendered(load(folder, "open.jinja"), messages, continue_final_message=field) == want


def test_a_message_printed_twice_cannot_be_left_open(tmp_path: Path) -> None:
    family = load(tiny_folder(tmp_path, "{{ messages[0].content }}{{ messages[0].content }}"))
    with pytest.raises(TemplateRefused, match="more than once"):
        family.text([USER], continue_final_message=True)


def test_an_open_message_and_a_generation_prompt_exclude_each_other(families: dict[str, Family]) -> None:
    with pytest.raises(InputError, match="continue_final_message"):
        families["chatml"].text([USER], add_generation_prompt=True, continue_final_message=True)


def test_tokenize_fn_asks_the_same_template(families: dict[str, Family]) -> None:
    family = families["chatml"]
    tokenize: TokenizeFn = family.tokenize_fn(tools=TOOLS, enable_thinking=False)
    for prompted in (False, True):
        want = family.ids([USER], tools=TOOLS, enable_thinking=False, add_generation_prompt=prompted)
        assert tokenize([USER], add_generation_prompt=prompted) == want


def with_notes(family: Family) -> tuple[Family, list[str]]:
    """Return a family, and the list to which it adds each text that it encodes."""
    encoded: list[str] = []

    class Noting:
        def encode(self, text: str, **options: Any) -> Any:
            encoded.append(text)
            return family.tokenizer.encode(text, **options)

        def get_added_tokens_decoder(self) -> Any:
            return family.tokenizer.get_added_tokens_decoder()

    return evolve(family, tokenizer=cast("Tokenizer", Noting())), encoded


def test_new_messages_of_a_known_case_are_encoded_once(families: dict[str, Family]) -> None:
    family = families["chatml"]
    bridge = family.bridge(spans=False)
    close = bridge.suffix or ()
    turn = {"role": "assistant", "content": "lo"}
    ids = [*family.ids([USER], add_generation_prompt=True), *family.encode("lo"), *close]
    known: dict[str, Any] = {"turn": turn, "history": [USER], "sampled": 1 + len(close)}
    bridge.extend(ids, [{"role": "user", "content": "hel"}], **known)  # it certifies the case
    noting, encoded = with_notes(family)
    bridge.tokenize_fn = noting.tokenize_fn()
    found = bridge.extend(ids, [{"role": "user", "content": "hello o lo"}], **known)
    assert isinstance(found, Extension)
    assert sum("hello o lo" in text for text in encoded) == 1
    assert not any("hello o lo more" in text for text in encoded)


def test_a_text_that_renders_are_cut_at_is_encoded_once(tmp_path: Path) -> None:
    noting, encoded = with_notes(load(tiny_folder(tmp_path / "closed", CLOSED)))
    tokenize = noting.tokenize_fn()
    for words in ("Why?", "When?"):
        said = [USER, {"role": "assistant", "content": "Zephyr"}, {"role": "user", "content": words}]
        tokenize.rendered(said, "Zephyr", add_generation_prompt=True, ids=True)
    assert encoded == ["Zephyr", "<eos>Why?<eos>", "<eos>When?<eos>"]


@pytest.mark.parametrize("template", ["{% for m in messages %}{{ m.content }}{% endfor %}", CLOSED])
@given(words=st.sampled_from(("lo", "o", "\u0301", " lo", "\nlo", "<eos>", "<eos>lo", "", "hel")) | st.text())
def test_a_cut_render_has_the_ids_that_it_has_in_one_piece(
    tmp_path_factory: pytest.TempPathFactory, template: str, words: str
) -> None:
    """Where a text meets what follows it, a tokenizer may make one id of both.

    Where the text stands twice or nowhere, the ids are those of the whole.
    """
    folder = tmp_path_factory.getbasetemp() / f"cut{len(template)}"
    family = load(folder if folder.exists() else tiny_folder(folder, template))
    said = [USER, {"role": "assistant", "content": "hel"}, {"role": "user", "content": words}]
    text = family.text(said, add_generation_prompt=True)
    cut = text[text.index("hel") :] if text.count("hel") == 1 else text
    found = partial(family.tokenize_fn().rendered, said, add_generation_prompt=True)
    assert found("hel", ids=True) == Rendered(text, family.encode(cut))
    for since in (None, "nowhere"):
        assert found(since, ids=True) == Rendered(text, family.encode(text))
    assert found("hel", ids=False) == Rendered(text)


def test_a_refusal_names_the_file_the_line_and_the_reason(families: dict[str, Family]) -> None:
    with pytest.raises(
        TemplateRefused, match=r"raises\.jinja, line 1: raise_exception: Roles must alternate, but user"
    ):
        families["raises"].tokenize_fn()([USER, USER], add_generation_prompt=True)
    with pytest.raises(TemplateRefused, match=r"undefined\.jinja, line 1: UndefinedError: .*nothing"):
        families["undefined"].text([USER])


def test_our_own_failures_are_no_refusals(folder: Path) -> None:
    def broken() -> datetime:
        raise OSError("the clock is gone")

    family = Family.load(folder, template="clock.jinja", clock=broken)
    with pytest.raises(OSError, match="the clock is gone"):
        family.text([USER])


def test_the_clock_is_the_wall_clock_unless_another_is_given(folder: Path) -> None:
    family = Family.load(folder, template="clock.jinja")
    assert str(family.clock().year) in family.text([USER])
    assert load(folder, "clock.jinja").text([USER]).startswith("01 January 2026 12:00")


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Weight(float):
    pass


def test_any_mapping_and_sequence_of_json_values_will_do(families: dict[str, Family]) -> None:
    odd = (MappingProxyType({"role": "user", "content": Colour.RED, "tool_calls": (OrderedDict(CALL),)}),)
    even = [{"role": "user", "content": "red", "tool_calls": [CALL]}]
    assert families["chatml"].text(odd) == families["chatml"].text(even)
    sized = families["arguments"].text([USER], effort=Size.SMALL, nested={"a": UserList([Weight(0.5)])})
    assert sized == families["arguments"].text([USER], effort=1, nested={"a": [0.5]})


def looped() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize(
    ("messages", "name"),
    [
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], r"messages\[0\]"),
        ([USER, {"role": "user", "content": object()}], r"messages\[1\]: .*object"),
        ([{"role": "user", "content": b"bytes"}], r"messages\[0\]: .*bytes"),
        ([{"role": "user", "content": looped()}], r"messages\[0\]: nested"),
    ],
)
def test_messages_that_are_no_messages_are_the_callers_mistake(
    messages: Any, name: str, families: dict[str, Family]
) -> None:
    with pytest.raises(InputError, match=name):
        families["chatml"].text(messages)


def test_half_a_surrogate_pair_is_the_callers_mistake(families: dict[str, Family]) -> None:
    with pytest.raises(InputError, match="surrogate"):
        families["chatml"].ids([{"role": "user", "content": "\ud800"}])


def test_nothing_the_caller_passed_is_changed(families: dict[str, Family]) -> None:
    messages = [
        {"role": "assistant", "content": "so", "reasoning": "hm", "tool_calls": [CALL], "extra": None}
    ]
    before = repr(messages), repr(TOOLS)
    families["chatml"].text(messages, tools=TOOLS, continue_final_message=True)
    assert (repr(messages), repr(TOOLS)) == before


def test_decoding_gives_the_text_back(families: dict[str, Family], tokenizer: Any) -> None:
    family = families["chatml"]
    ids = family.ids([USER], add_generation_prompt=True)
    assert family.decode(ids) == family.text([USER], add_generation_prompt=True) == tokenizer.decode(ids)
    assert family.decode([*ids, 10**6]) == family.decode(ids)
    assert family.vocab_size == len(tokenizer) > max(ids)


# Several templates in one folder


def outcomes(path: Path, **options: Any) -> Iterator[tuple[Any, Any]]:
    family, tokenizer = load(path), reference(path)
    for tools in (None, [], TOOLS):
        yield (
            rendered(family, [USER], tools=tools, **options),
            expected(tokenizer, [USER], tools=tools, **options),
        )


NAMED = [
    {"name": "default", "template": "D{{ messages[0].content }}"},
    {"name": "tool_use", "template": "T{{ tools }}"},
]


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config__json": {**CONFIG, "chat_template": "C{{ bos_token }}"}},
        {"tokenizer_config__json": {**CONFIG, "chat_template": NAMED}},
        {"tokenizer_config__json": {**CONFIG, "chat_template": NAMED[:1]}},
        {"tokenizer_config__json": {**CONFIG, "chat_template": {"default": "D", "rag": "R"}}},
        {"chat_template__jinja": "F", "tokenizer_config__json": {**CONFIG, "chat_template": NAMED}},
        {"chat_template__jinja": "F", "additional_chat_templates/tool_use__jinja": "A{{ tools }}"},
        {"chat_template__jinja": "F", "additional_chat_templates/rag__jinja": "R"},
        {"chat_template__jinja": "F\r\nG\n"},
        {"chat_template__jinja": "\ufeffF"},
    ],
)
def test_the_template_is_the_one_that_transformers_takes(tmp_path: Path, files: dict[str, Any]) -> None:
    for got, want in outcomes(tiny_folder(tmp_path, **files)):
        assert got == want is not None


def test_a_template_only_for_tools_needs_tools(tmp_path: Path) -> None:
    family = load(tiny_folder(tmp_path, tokenizer_config__json={**CONFIG, "chat_template": NAMED[1:]}))
    assert family.text([USER], tools=[]) == "T[]"
    with pytest.raises(ValueError, match="needs tools"):
        family.text([USER])


def test_a_template_can_be_named_or_be_a_file(tmp_path: Path) -> None:
    config = {**CONFIG, "chat_template": [*NAMED, {"name": "rag", "template": "R"}]}
    path = tiny_folder(tmp_path / "folder", tokenizer_config__json=config, chat_template__other__jinja="O")
    (tmp_path / "elsewhere.jinja").write_text("E")
    made = [
        load(path, one).text([USER], tools=TOOLS) for one in ("rag", "default", "chat_template.other.jinja")
    ]
    assert made == ["R", "D" + USER["content"], "O"]
    assert load(path, str(tmp_path / "elsewhere.jinja")).text([USER]) == "E"


# Special tokens and stops


@pytest.mark.parametrize(
    ("files", "stops"),
    [
        ({}, ["<eos>"]),
        ({"tokenizer_config__json": {"tokenizer_class": "PreTrainedTokenizerFast"}}, []),
        ({"generation_config__json": {"eos_token_id": 4}}, ["<|im_end|>"]),
        ({"generation_config__json": {"eos_token_id": [4, 1]}}, ["<|im_end|>", "<eos>"]),
        ({"generation_config__json": {"temperature": 1.0}}, ["<eos>"]),
    ],
)
def test_stops_come_from_the_generation_config_or_the_end_token(
    tmp_path: Path, files: dict[str, Any], stops: list[str]
) -> None:
    family = load(tiny_folder(tmp_path, "x", **files))
    assert [family.decode([one]) for one in family.stop_ids] == stops


SHOWN = (
    "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ image_token }}{{ boi_token }}{{ messages[0].content }}"
)
SPELLED = "the user <new> said <eos>  to a fox<think> <last>, so <pad><image>"


@pytest.mark.parametrize("case", CASES["token_files"])
def test_tokens_are_those_of_transformers(tmp_path: Path, case: str) -> None:
    path = tiny_folder(tmp_path, SHOWN, **CASES["token_files"][case])
    family, tokenizer = load(path), reference(path)
    messages = [{"role": "user", "content": SPELLED}]
    assert rendered(family, messages) == expected(tokenizer, messages)
    assert family.special_tokens == tokenizer.special_tokens_map
    assert family.vocab_size == len(tokenizer)


BEGINS = TemplateProcessing(single="<bos> $0", special_tokens=[("<bos>", 0)])
TRAINED: dict[str, Callable[[Tokenizer], None]] = {
    "beginning": lambda tokenizer: setattr(tokenizer, "post_processor", BEGINS),
    "truncation": lambda tokenizer: tokenizer.enable_truncation(3),
    "padding": lambda tokenizer: tokenizer.enable_padding(length=500),
}


@pytest.mark.parametrize("kept", TRAINED)
def test_what_the_training_kept_in_the_tokenizer_is_off(tmp_path: Path, kept: str) -> None:
    path = tiny_folder(tmp_path, CHATML)
    family = load(path)
    before = rendered(family, [USER])
    TRAINED[kept](family.tokenizer)
    family.tokenizer.save(str(path / "tokenizer.json"))
    assert rendered(load(path), [USER]) == expected(reference(path), [USER]) == before


def test_a_family_does_not_change(folder: Path) -> None:
    family = load(folder)
    with pytest.raises(AttributeError):
        family.path = folder  # type: ignore[misc]  # that it cannot be set is the point
    with pytest.raises(TypeError):
        family.special_tokens["a"] = "x"  # type: ignore[index]  # likewise
    assert family.clock() == NOON


@pytest.mark.parametrize("ids", ["abc", [-1], [2**40], [1.5], None, 5])
def test_what_is_not_a_sequence_of_ids_is_not_decoded(tmp_path: Path, ids: Any) -> None:
    with pytest.raises(InputError, match=r"^ids is .*; give token ids"):
        load(tiny_folder(tmp_path, CHATML)).decode(ids)


@pytest.mark.parametrize("read", [Family.load, Family.of_gguf])
@pytest.mark.parametrize("path", [None, 5, b"folder"])
def test_a_path_is_a_string_or_a_path(read: Any, path: Any) -> None:
    with pytest.raises(InputError, match=r"^path is .*: give a "):
        read(path)
