"""Next prompts for frameworks that build prompts for many rollouts, with one tokenizer and in threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Literal, Unpack, get_args

from attrs import define, field

from tito_core import Extension, Message, Policy, Refusal
from tito_core.bridge import Known
from tito_io.families.images import WithImages

from .arguments import check_on_refusal
from .next_prompts import KEEP, NextPrompts, check_choices

OnRefusal = Literal["raise", "rerender"]
"""What follows a refusal where nothing can end a sample: a `RefusedError`, or a fresh render."""


@define(eq=False)
class SharedPrompts:
    """One `NextPrompts` per tokenizer and template arguments, made once and asked by one thread at a time.

    Attributes:
        stop_ids: The ids that end a turn; None: see `Family.of`.
        policy: What to do with cut turns and odd stops.
        on_refusal: "raise" a `RefusedError`, or "rerender", which is the caller's to do.

    Raises:
        InputError: `on_refusal` is another choice, such as "end", or another argument is malformed.
    """

    stop_ids: Sequence[int] | None = None
    policy: Policy = KEEP
    on_refusal: OnRefusal = "raise"
    _lock: Lock = field(factory=Lock, init=False, repr=False)
    _known: dict[tuple[int, str], NextPrompts] = field(factory=dict, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        check_on_refusal(self.on_refusal, get_args(OnRefusal))
        check_choices(self.stop_ids, self.policy)

    @property
    def built(self) -> Counter[str]:
        """How many prompts were built from ids."""
        return sum((prompts.built for prompts in self._known.values()), Counter())

    @property
    def refused(self) -> Counter[str]:
        """How many prompts were refused, by the name of the reason."""
        return sum((prompts.refused for prompts in self._known.values()), Counter())

    def of(self, tokenizer: Any, template_args: Mapping[str, Any]) -> NextPrompts:
        """Return the prompts of a tokenizer; raises `InputError` if it has no chat template."""
        key = (id(tokenizer), repr(template_args))  # the family holds the tokenizer, so that its id stays
        if key not in self._known:
            self._known[key] = NextPrompts.of(
                tokenizer,
                stop_ids=self.stop_ids,
                template_args=template_args,
                policy=self.policy,
                on_refusal=self.on_refusal,
            )
        return self._known[key]

    def extend(
        self,
        prompts: NextPrompts,
        ids: Sequence[int],
        new_messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **known: Unpack[Known],
    ) -> Extension | Refusal:
        """Return the next prompt as `NextPrompts.extend` does.

        Threads wait for each other: a template that is new is asked once, not once in every thread.
        """
        with self._lock:
            return prompts.extend(ids, new_messages, tools=tools, **known)

    def extend_with_images(
        self,
        prompts: NextPrompts,
        ids: Sequence[int],
        new_messages: Sequence[Message],
        images: Sequence[Any],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        processor_args: Mapping[str, Any] | None = None,
        **known: Unpack[Known],
    ) -> WithImages[Extension] | Refusal:
        """Return the next prompt as `NextPrompts.extend_with_images` does.

        A tokenizer takes one text at a time, that of a processor, too.
        """
        with self._lock:
            return prompts.extend_with_images(
                ids, new_messages, images, tools=tools, processor_args=processor_args, **known
            )
