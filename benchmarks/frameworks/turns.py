"""The turns that every framework continues: whole, cut, or ended by an odd stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from tests.frameworks.laws.merges import Merge, Merges
from tests.frameworks.turns import SampledPrompt, sampled_prompts, stop_ids
from tito_core.seams.seam import common_prefix


@attrs.frozen
class Turn:
    """A sampled turn, the messages after it, and the next prompts that are right.

    Attributes:
        prompt: The conversation, and the ids so far.
        ending: How the turn ended.
        ids: The ids of the prompt and of the turn.
        start: How many of them are the prompt's.
        right: The next prompts that keep what was sampled, and close the turn once.
    """

    prompt: SampledPrompt
    ending: str
    ids: list[int]
    start: int
    right: list[list[int]]


Extend = Callable[[Turn], list[int] | None]
"""Returns the next prompt of a turn; None if the framework renders the conversation again."""


class NotOffered(Exception):  # noqa: N818  # no error: the framework has no such turn
    """The framework never continues such a turn."""


def turns(tokenizer: Any, stops: Sequence[int]) -> Iterator[Turn]:
    """Yield the turns that the tokenizer's template can render."""
    for prompt in sampled_prompts(tokenizer, stops):
        asked = tokenizer.apply_chat_template(
            prompt.history, tools=prompt.tools, add_generation_prompt=True, return_dict=False
        )
        start = common_prefix(asked, prompt.ids)
        yield Turn(prompt, "cut" if prompt.cut else "whole", prompt.ids, start, [prompt.expected])
        odd = next((stop for stop in stops if stop != prompt.ids[-1]), None)
        if odd is not None and not prompt.cut:
            tail = prompt.render[len(prompt.ids) - 1 :]
            said = prompt.ids[:-1]
            # An odd stop may be kept before the close, or replaced by it.
            yield Turn(prompt, "odd stop", [*said, odd], start, [[*said, odd, *tail], [*said, *tail]])


def of_merges(kind: type[Merges]) -> tuple[Callable[[Any, str], Extend], Callable[[Any, str], Extend]]:
    """Return what makes the framework's own way and tito's, by the adapter of its tests."""

    def way(name: str, tokenizer: Any, family: str) -> Extend:
        merges = kind(family, tokenizer, stop_ids(family))
        merge: Merge = getattr(merges, name)()

        def extend(turn: Turn) -> list[int]:
            case = attrs.evolve(turn.prompt, ids=turn.ids)
            if not merges.takes(case):
                raise NotOffered
            return merge(case)

        return extend

    return partial(way, "theirs"), partial(way, "ours")


def continued(turn: Turn, prompt: list[int], found: list[int]) -> list[int]:
    """Return a next prompt with the turn's own prompt at its beginning.

    Frameworks that write the first prompt themselves are asked for what follows it. If the answer does not
    begin with that prompt and the sampled ids, it stays as it is.
    """
    before = [*prompt, *turn.ids[turn.start :]]
    return [*turn.ids, *found[len(before) :]] if found[: len(before)] == before else found
