"""What is told of a template beside its cases, for every toy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core.example import refusing, shown, takes_arguments
from tito_core import answer
from tito_core.seams.facts import facts_questions
from tito_core.seams.probe import probe_questions
from tito_core.seams.profile import Facts
from tito_core.testing.toys import TOYS, Message, Toy

BY_NAME = {toy.name: toy for toy in TOYS}
CHATML = BY_NAME["chatml"]
USUAL = Facts(
    arguments="either",
    follows=("user", "tool", "system", "developer", "assistant"),
    grouped_results=False,
    default_system=False,
    null_content="same",
    absent_content="same",
    parts_content="same",
    opens_thought=False,
    drops_reasoning=False,
    trims=False,
)
"""Of a template that writes every message alike."""
NO_TOOL = ("user", "system", "developer", "assistant")
PLAIN = {"arguments": None, "follows": NO_TOOL, "drops_reasoning": True}
NOTHING = {"arguments": None, "follows": (), "drops_reasoning": True, "trims": True}
UNUSUAL: dict[str, dict[str, Any]] = {
    "truncating": {"arguments": None, "follows": (), "trims": True},
    "alternating": {**PLAIN, "follows": ("user",), "grouped_results": None, "trims": True},
    "backward_short_close": {"drops_reasoning": True},
    "backward_calls": {"drops_reasoning": True},
    "bracketed": {"drops_reasoning": True},
    "constant": NOTHING,
    "default_system": {"default_system": True},
    "double_encoder": {"arguments": "object"},
    "grouped": {"grouped_results": True},
    "harmony": {"follows": ("user", "assistant"), "drops_reasoning": True},
    "system_first": {"follows": ("user", "tool", "developer", "assistant")},
    "ignores_arguments": {"arguments": None, "follows": NO_TOOL},
    "closed_later": {"drops_reasoning": True},
    "mapping_arguments": {"arguments": "object", "grouped_results": None},
    "markers": {"follows": NO_TOOL},
    "prints_length": {"follows": ("tool", "assistant")},
    "no_developer": {"follows": ("user", "tool", "system", "assistant")},
    "numbered_turns": {"opens_thought": True},
    "opens_thinking": {"opens_thought": True},
    "parts_only": {"follows": (), "parts_content": "differs", "trims": True},
    "plain_unmerged": PLAIN,
    "plain_merged_header": {**PLAIN, "follows": NO_TOOL[1:], "grouped_results": True},
    "plain_merged_letters": {**PLAIN, "follows": ()},
    "plain_text": PLAIN,
    "prints_none": {"null_content": "differs", "absent_content": "differs"},
    "repeats_arguments": {"follows": NO_TOOL},
    "empty": NOTHING,
    "string_arguments": {"arguments": "text", "follows": NO_TOOL},
    "strings_only": {"parts_content": "differs"},
    "thinking_switch": {"opens_thought": True},
    "thinking": {"drops_reasoning": True},
    "two_closes": {"follows": NO_TOOL},
}


def facts_of(toy: Toy) -> Facts:
    return answer(facts_questions(toy.suffix), toy)


@pytest.mark.parametrize("toy", [toy for toy in TOYS if not toy.nondeterministic], ids=repr)
def test_only_unusual_facts_of_a_template_are_listed(toy: Toy) -> None:
    found = attrs.evolve(facts_of(toy), opening=(), openers={})
    assert found == attrs.evolve(USUAL, **UNUSUAL.get(toy.name, {}))


def test_a_template_that_takes_only_lists_of_parts_is_asked_for_its_facts_in_parts() -> None:
    """Otherwise it would write no turn, and nothing could be said of it."""
    toy = BY_NAME["parts_only"]
    profile = answer(probe_questions(toy.stop_ids), toy)
    assert attrs.evolve(profile.facts, opening=(), openers={}) == USUAL
    assert profile.suffix == toy.suffix
    assert toy.tokenizer.decode(profile.facts.openers["user"]) == "<|im_start|>user\n"


@pytest.mark.parametrize("name", ["clock", "nonce"])
def test_a_template_that_is_not_deterministic_has_no_other_facts(name: str) -> None:
    assert facts_of(BY_NAME[name]) == Facts(random=True)


@pytest.mark.parametrize(
    ("name", "opening"),
    [
        ("chatml", "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello.<|im_end|>\n"),
        ("alternating", "<bos><turn>user\nBe brief.\n\nHello.</turn>\n"),
        ("moving_system", "<|im_start|>user\nBe brief.\n\nHello.<|im_end|>\n"),
    ],
)
def test_the_opening_is_how_a_conversation_begins(name: str, opening: str) -> None:
    toy = BY_NAME[name]
    speaks = {"alternating": "<turn>model\n"}.get(name, "<|im_start|>assistant\n")
    assert toy.tokenizer.decode(facts_of(toy).opening) == opening + speaks


def test_the_opening_is_without_a_system_text_where_none_is_taken() -> None:
    choosy = refusing(lambda messages: messages[0]["role"] == "system", template=CHATML)
    found = answer(facts_questions(CHATML.suffix), choosy)
    text = CHATML.tokenizer.decode(found.opening)
    assert text == "<|im_start|>user\nHello.<|im_end|>\n<|im_start|>assistant\n"
    assert (found.default_system, found.random) == (False, False)


def test_a_template_that_writes_nothing_for_an_empty_system_text_has_no_default() -> None:
    def joined(messages: Sequence[Message]) -> Sequence[Message]:
        first, *rest = messages
        if first["role"] == "system" and first["content"]:
            rest[0] = {**rest[0], "content": f"{first['content']} ({rest[0]['content']})"}
        return rest if first["role"] == "system" else messages

    found = answer(facts_questions(CHATML.suffix), shown(joined, CHATML))
    assert found.default_system is False
    assert "Be brief. (Hello.)" in CHATML.tokenizer.decode(found.opening)


@pytest.mark.parametrize(
    ("name", "openers"),
    [
        ("chatml", {role: f"<|im_start|>{role}\n" for role in USUAL.follows}),
        ("grouped", {"user": "<|im_start|>user\n", "tool": "<|im_start|>user\n[result]\n"}),
        ("bracketed", {"user": "[INST]", "tool": "[RESULTS]", "system": "[SYSTEM]", "assistant": ""}),
        ("markers", {"user": "<|user|>\n", "system": "<|system|>\n", "developer": "<|system|>\n"}),
        ("paired_close", {"user": "<|user|>", "tool": "<|tool|>"}),
    ],
)
def test_an_opener_stands_between_the_close_and_what_a_message_says(
    name: str, openers: dict[str, str]
) -> None:
    toy = BY_NAME[name]
    found = {role: toy.tokenizer.decode(ids) for role, ids in facts_of(toy).openers.items()}
    assert openers.items() <= found.items()


def test_a_template_that_takes_one_conversation_only_has_no_facts() -> None:
    """One that takes a lone user, and answers it: all else cannot be told."""
    lonely = refusing(
        lambda messages: len(messages) > 1 or not isinstance(messages[0]["content"], str), template=CHATML
    )
    found = answer(facts_questions(CHATML.suffix), lonely)
    assert found == Facts(
        default_system=False,
        null_content="same",
        absent_content="same",
        parts_content="refused",
        opening=found.opening,
    )
    assert found.opening


def test_a_null_content_and_a_missing_one_are_two_facts() -> None:
    printing = shown(
        lambda messages: [{**one, "content": str(one.get("content", ""))} for one in messages], CHATML
    )
    found = answer(facts_questions(CHATML.suffix), printing)
    assert (found.null_content, found.absent_content) == ("differs", "same")


@pytest.mark.parametrize(("form", "taken"), [("object", dict), ("text", str)])
def test_the_accepted_form_of_arguments_is_a_fact(form: str, taken: type) -> None:
    for name, content in (("chatml", "same"), ("prints_none", "differs")):
        toy = BY_NAME[name]
        found = answer(facts_questions(toy.suffix), takes_arguments(taken, toy))
        assert found.arguments == form
        assert (found.null_content, found.absent_content) == (content, content)


def test_a_profile_without_cases_holds_the_suffix_the_stops_and_the_facts() -> None:
    toy = BY_NAME["markers"]
    profile = answer(probe_questions(list(toy.stop_ids)), toy)
    assert (profile.suffix, profile.stop_ids, profile.cases) == (toy.suffix, toy.stop_ids, ())
    assert profile.facts == facts_of(toy)
    assert {toy.tokenizer.decode([index]) for index in profile.markers} == {"<|user|>"}
