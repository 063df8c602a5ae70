"""A question is made of messages and answered with ids; anything else is named."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import example
from tito_core import Question, Questions, Rendered, TemplateRefused, TokenizeError, answer
from tito_core.questions import ask, ask_rendered, in_parts, relayed


@pytest.mark.parametrize(
    ("answered", "words"),
    [
        ([1, -1], r"^the answer of tokenize_fn\[1\] is -1: an id is a whole number"),
        ("ids", r"^the answer of tokenize_fn must be a sequence of ids, not str: give a flat list$"),
    ],
)
def test_an_answer_that_is_not_ids_is_named_by_its_index(answered: Any, words: str) -> None:
    with pytest.raises(TokenizeError, match=words):
        answer(ask((example.user(),)), lambda *_, **__: answered)


def test_tokenize_fn_gets_copies() -> None:
    message = {"role": "user", "content": ["a"]}
    question = next(ask((message,)))
    question.messages[0]["content"].append("b")
    assert message == {"role": "user", "content": ["a"]}


def part(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


@pytest.mark.parametrize(
    ("message", "written"),
    [
        ({"content": "a"}, {"content": [part("a")]}),
        ({"content": ""}, {"content": [part("")]}),
        ({"content": None}, {"content": None}),
        ({}, {}),
        ({"content": [part("a"), part("b")]}, {"content": [part("a"), part("b")]}),
        ({"content": [part("a", x=1)], "name": "n"}, {"content": [part("a", x=1)], "name": "n"}),
        ({"content": "a", "name": "n"}, {"content": [part("a")], "name": "n"}),
    ],
)
def test_a_text_is_asked_about_as_a_list_of_one_part(
    message: dict[str, Any], written: dict[str, Any]
) -> None:
    given = ({"role": "user", **message},)
    changed = in_parts(Question(given, add_generation_prompt=False, since="Zephyr"))
    assert changed == Question(({"role": "user", **written},), add_generation_prompt=False, since="Zephyr")
    assert given == ({"role": "user", **message},)


def trying() -> Questions[list[Any]]:
    """Ask three questions and return the answers; a refused one is what the template said."""
    found: list[Any] = []
    for words in ("a", "b", "c"):
        try:
            found.append((yield from ask((example.user(words),))))
        except TemplateRefused as refused:
            found.append(str(refused))
    return found


def test_relayed_questions_are_changed_and_their_answers_are_not() -> None:
    asked: list[Any] = []

    def tokenize(messages: Any, *, add_generation_prompt: bool) -> list[int]:
        asked.append(messages[0]["content"])
        if len(asked) == 2:
            raise TemplateRefused("not b")
        return [len(asked), add_generation_prompt + 5]

    assert answer(relayed(trying(), in_parts), tokenize) == [(1, 6), "not b", (3, 6)]
    assert asked == [[part("a")], [part("b")], [part("c")]]


def test_what_is_relayed_twice_is_changed_twice() -> None:
    counted: list[Question] = []

    def count(question: Question) -> Question:
        counted.append(question)
        return question

    found = answer(relayed(relayed(trying(), in_parts), count), lambda *_, **__: [1])
    assert found == [(1,)] * 3
    assert [question.messages[0]["content"] for question in counted] == [[part(one)] for one in "abc"]


def test_an_error_of_the_caller_ends_relayed_questions() -> None:
    def failing(*_: Any, **__: Any) -> list[int]:
        raise OSError("gone")

    with pytest.raises(OSError, match=r"^gone$"):
        answer(relayed(trying(), in_parts), failing)


@pytest.mark.parametrize(
    ("answered", "words"),
    [({"input_ids": [1]}, "give the list in it"), ([[1, 2]], "answered with a batch")],
)
def test_an_answer_of_a_tokenizer_that_is_not_flat_says_what_to_give(answered: Any, words: str) -> None:
    with pytest.raises(TokenizeError, match=words):
        answer(ask((example.user(),)), lambda *_, **__: answered)


def test_a_text_comes_with_checked_ids() -> None:
    class WithText:
        ids: Any = (1, 2)

        def __call__(self, *_: Any, **__: Any) -> list[int]:
            return [3]

        def rendered(self, messages: Any, since: Any, *, add_generation_prompt: bool, ids: bool) -> Rendered:
            assert (messages, since, add_generation_prompt) == ([example.user()], "hi", True)
            return Rendered("hi", self.ids if ids else ())

    with_text = WithText()
    asked = (example.user(),)
    assert answer(ask_rendered(asked, since="hi"), with_text) == Rendered("hi", (1, 2))
    assert answer(ask_rendered(asked, since="hi", ids=False), with_text) == Rendered("hi", ())
    assert answer(ask(asked, since=None), with_text) == (3,)
    with_text.ids = [-1]
    with pytest.raises(TokenizeError, match=r"^the answer of tokenize_fn\[0\] is -1"):
        answer(ask_rendered(asked, since="hi"), with_text)


def test_where_there_is_no_text_the_answer_is_ids() -> None:
    assert answer(ask_rendered((example.user(),)), lambda *_, **__: [1]) == Rendered(None, (1,))
