"""Turns of gpt-oss are read as OpenAI's own parser reads them, the package openai-harmony.

That parser takes ids, and downloads a vocabulary unless a folder has it. The model's folder has the same one
in another form: the library checks the digest of what is made of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import openai_harmony
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.model_folders import FAMILIES
from tito_io.engines.replies.harmony import ANY_MARKER, parse
from tito_io.engines.replies.hermes import Tags

FOLDER = FAMILIES / "gpt-oss"
pytestmark = pytest.mark.skipif(
    not (FOLDER / "tokenizer.json").is_file(), reason="needs the folder gpt-oss: TITO_FAMILIES"
)

CALLING = (
    "<|channel|>commentary to=functions.look <|constrain|>json",
    "<|channel|>commentary to=functions.look json",
    " to=functions.look<|channel|>commentary <|constrain|>json",
    " to=functions.look_up<|channel|>commentary json",
    " to=functions.look<|channel|>analysis",
)
SAYING = (
    "<|channel|>analysis",
    "<|channel|>commentary",
    "<|channel|>final",
    "<|channel|>analysis to=python code",
    " to=browser.open<|channel|>commentary",
)
TEXTS = st.one_of(
    st.sampled_from(("", "\n", "Hm.", " Köln ", '{"a": 1}', "to=functions.look", "analysis", "世界")),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8).filter(lambda text: "<|" not in text),
)
ARGUMENTS = st.sampled_from(('{"a":1}', '{"a": "b"}', "{}", '{"a":', "[1]", "text", ""))
MESSAGES = st.one_of(
    st.tuples(st.sampled_from(CALLING), ARGUMENTS, st.sampled_from(("<|call|>", "<|end|>"))),
    st.tuples(st.sampled_from(SAYING), TEXTS, st.just("<|end|>")),
)


@pytest.fixture(scope="module")
def encoding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai_harmony.HarmonyEncoding]:
    """Load OpenAI's encoding with the vocabulary of the model's folder."""
    folder = tmp_path_factory.mktemp("vocabulary")
    vocabulary = json.loads((FOLDER / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    byte_of = {letter: byte for byte, letter in enumerate(byte_letters())}
    ranked = sorted((rank, bytes(map(byte_of.__getitem__, token))) for token, rank in vocabulary.items())
    lines = [b"%b %d\n" % (base64.b64encode(token), rank) for rank, token in ranked]
    (folder / "o200k_base.tiktoken").write_bytes(b"".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        yield openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)


def byte_letters() -> list[str]:
    """Return the letter that stands for each byte in the vocabulary: itself, where it can be printed."""
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printed else next(others)) for byte in range(256)]


def read(messages: Sequence[Any], ends: Sequence[str]) -> tuple[str | None, str, tuple[tuple[str, str], ...]]:
    """Return reasoning, content and calls of the messages that OpenAI's parser found."""
    reasoning, content, calls = [], [], []
    for message, end in zip(messages, ends, strict=True):
        text = "".join(part.text for part in message.content)
        recipient, whole = message.recipient or "", end == "<|call|>"
        with suppress(ValueError):
            whole = whole or isinstance(json.loads(text), dict)
        if recipient.startswith("functions.") and whole:
            calls.append((recipient.removeprefix("functions."), text))
        elif message.channel == "analysis" or (recipient and not recipient.startswith("functions.")):
            reasoning.append(text)
        else:
            content.append(text)
    return "\n".join(filter(None, reasoning)) or None, "\n".join(filter(None, content)), tuple(calls)


@given(messages=st.lists(MESSAGES, min_size=1, max_size=4), cut=st.booleans())
def test_a_turn_is_read_as_openai_reads_it(
    encoding: openai_harmony.HarmonyEncoding, messages: list[tuple[str, str, str]], *, cut: bool
) -> None:
    *others, (header, text, end) = messages
    last = "" if cut else "<|return|>" if header in SAYING else end
    turn = [*others, (header, text, last)]
    written = "<|start|>assistant".join(f"{one}<|message|>{said}{close}" for one, said, close in turn)
    ids = encoding.encode(written, allowed_special="all")
    theirs = encoding.parse_messages_from_completion_tokens(ids, openai_harmony.Role.ASSISTANT)
    body = written.removesuffix(last)
    ours = parse(body, Tags(pattern=ANY_MARKER).marks(body), end=last)
    assert (ours.reasoning, ours.content, ours.calls) == read(theirs, [close for *_, close in turn])
