"""What callers write as a `TokenizeFn` is taken, by mypy and at run time; what cannot be called is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import anyio
import numpy as np
import numpy.typing as npt
import pytest

from tests.core import example
from tito_core import Bridge, InputError, Message, TokenizeError, TokenizeFn, stitch, suffix_ids, try_stitch
from tito_io.client import AsyncBridge
from tito_io.client.driver import AsyncTokenizeFn
from tito_io.client.turn_sampler import Renderer
from tito_io.engines.protocol import Rendering


def lists(messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
    return example.tokenize(messages.copy(), add_generation_prompt=add_generation_prompt)


def mappings(messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> tuple[int, ...]:
    return tuple(example.tokenize(messages, add_generation_prompt=add_generation_prompt))


def messages_by_another_name(conversation: Sequence[Message], add_generation_prompt: bool) -> Sequence[int]:
    return example.tokenize(conversation, add_generation_prompt=add_generation_prompt)


def arrays(messages: Iterable[dict[str, Any]], **options: Any) -> npt.NDArray[np.int64]:
    return np.array(example.tokenize(list(messages), **options))


TAKEN: list[TokenizeFn] = [lists, mappings, messages_by_another_name, arrays]


@pytest.mark.parametrize("tokenize", TAKEN, ids=lambda one: one.__name__)
def test_a_function_that_a_caller_writes_gives_the_same_prompts(tokenize: TokenizeFn) -> None:
    step = example.step()
    prompt, close = example.prompt(step), suffix_ids(example.tokenize)
    right = stitch([step], prompt, close, example.tokenize)
    assert right is not None
    assert suffix_ids(tokenize) == close
    assert stitch([step], prompt, close, tokenize) == right
    assert Bridge(tokenize).extend(step.ids, prompt[-1:]) == Bridge(example.tokenize).extend(
        step.ids, prompt[-1:]
    )


async def awaited(messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
    return lists(messages, add_generation_prompt=add_generation_prompt)


def test_a_renderer_of_a_client_may_take_lists() -> None:
    def render(_: Rendering) -> AsyncTokenizeFn:
        return awaited

    renderer: Renderer = render
    step = example.step()
    bridge = AsyncBridge(renderer(Rendering()))
    assert anyio.run(bridge.extend, step.ids, example.prompt(step)[-1:]) == Bridge(lists).extend(
        step.ids, example.prompt(step)[-1:]
    )


def use(tokenize: Any) -> list[Any]:
    """Return what to call with a function that is wrong."""
    step = example.step()
    return [
        partial(suffix_ids, tokenize),
        partial(try_stitch, [step], example.prompt(step), (example.CLOSE,), tokenize),
        partial(Bridge(tokenize, [example.CLOSE]).extend, step.ids, example.prompt(step)[-1:]),
        partial(anyio.run, AsyncBridge(tokenize).extend, step.ids, example.prompt(step)[-1:]),
    ]


def bare(messages: Any) -> list[int]:
    return example.tokenize(messages, add_generation_prompt=True)


class BareRenderer:
    def __call__(self, messages: Any, *, add_generation_prompt: bool) -> list[int]:
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    def rendered(self, messages: Any) -> None:
        """Take too little."""


@pytest.mark.parametrize("place", range(4))
def test_a_function_without_the_argument_is_shown_what_to_take(place: int) -> None:
    wanted = r"define it as def tokenize\(messages, \*, add_generation_prompt\)$"
    words = rf"^tokenize_fn cannot be called: bare\(\) got an unexpected .*'; {wanted}"
    with pytest.raises(InputError, match=words):
        use(bare)[place]()


def test_a_renderer_without_the_arguments_is_shown_what_to_take() -> None:
    wanted = r"def rendered\(self, messages, since, \*, ids, add_generation_prompt\)$"
    with pytest.raises(InputError, match=rf"BareRenderer.rendered\(\) got .*'; define it as {wanted}"):
        use(BareRenderer())[2]()


@pytest.mark.parametrize("place", range(4))
def test_a_type_error_inside_of_a_function_passes_through(place: int) -> None:
    def inside(messages: Any, *, add_generation_prompt: bool) -> Any:
        wrong: Any = bare
        return wrong(messages, add_generation_prompt=add_generation_prompt)

    with pytest.raises(TypeError, match=r"^bare\(\) got an unexpected keyword argument"):
        use(inside)[place]()


@pytest.mark.parametrize("place", [0, 2])
def test_a_function_with_two_answers_to_one_question_is_not_taken_for_a_template_that_loses_texts(
    place: int,
) -> None:
    answers = count(100)

    def unsteady(_: Any, *, add_generation_prompt: bool) -> list[int]:
        return [next(answers) for _ in range(50 + add_generation_prompt)]

    words = r"^tokenize_fn gave two answers to the same question: equal messages must have equal ids$"
    with pytest.raises(InputError, match=words):
        use(unsteady)[place]()


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_async_function_is_shown_what_awaits_it(place: int) -> None:
    with pytest.raises(TokenizeError, match=r"await AsyncBridge\(.*or answer\(stitch_questions\(.*client$"):
        use(awaited)[place]()
