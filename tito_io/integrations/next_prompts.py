"""Build next prompts for frameworks that hold ids and new messages, and handle refusals."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, Unpack, get_args

from attrs import field, frozen

from tito_core import Extension, InputError, Message, OddStop, Policy, Refusal, TemplateRefused
from tito_core.bridge import Known
from tito_core.checks import require
from tito_core.errors import TitoError
from tito_core.ids import checked
from tito_core.media.ranges import PlaceholderIds
from tito_core.message import is_multimodal
from tito_core.refusal import Reason
from tito_io.families import Family
from tito_io.families.images import WithImages
from tito_io.families.tokenizer_family import TokenizerFamily

from .arguments import check_on_refusal, check_template, log_unknown_variables

OnRefusal = Literal["rerender", "end", "raise"]
"""What follows a refusal: a fresh render of the messages, the end of the sample, or a `RefusedError`."""

KEEP = Policy(odd_stop=OddStop.KEEP)
"""The policy of integrations: a sampled id is never taken away, and a missing close is written."""

_LOG = logging.getLogger("tito.integrations")


class RefusedError(TitoError):
    """The next prompt cannot be built from the ids.

    Attributes:
        refusal: Why.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(f"{refusal.reason.name}: {refusal.reason.value}: {refusal.detail}")
        self.refusal = refusal


def check_choices(stop_ids: Sequence[int] | None, policy: Policy) -> None:
    """Raise `InputError` for stop ids or a policy that would fail at the first prompt only."""
    if stop_ids is not None and not checked(stop_ids, "stop_ids"):
        raise InputError("stop_ids is empty: give the ids that end a turn, or None for the tokenizer's")
    require(policy, Policy, "policy", "a Policy, such as Policy(odd_stop=OddStop.KEEP)")


class CountsPrompts:
    """Counts of the prompts that an integration builds with `_prompts`.

    Attributes:
        built: How many prompts were built from ids.
        refused: How many prompts were refused, by the name of the reason.
    """

    _prompts: Any = None

    @property
    def built(self) -> Counter[str]:
        """How many prompts were built from ids."""
        return Counter() if self._prompts is None else self._prompts.built

    @property
    def refused(self) -> Counter[str]:
        """How many prompts were refused, by the name of the reason."""
        return Counter() if self._prompts is None else self._prompts.refused


@frozen(eq=False)
class NextPrompts:
    """Extends ids by new messages, one bridge per set of tools, and counts what was refused.

    Attributes:
        family: The tokenizer and its template.
        template_args: Variables for the template.
        policy: What to do with cut turns and odd stops.
        on_refusal: What follows a refusal. "raise" is done here; "rerender" and "end" are the caller's to do.
        spans: Whether to ask which ids belong to which new message.
        built: How many prompts were built from ids.
        refused: How many were refused, by the name of the reason.
    """

    family: TokenizerFamily
    template_args: Mapping[str, Any]
    policy: Policy
    on_refusal: OnRefusal
    spans: bool
    built: Counter[str] = field(factory=Counter, init=False)
    refused: Counter[str] = field(factory=Counter, init=False)

    @classmethod
    def of(
        cls,
        tokenizer: Any,
        *,
        stop_ids: Sequence[int] | None = None,
        template: str | None = None,
        template_args: Mapping[str, Any] | None = None,
        policy: Policy = KEEP,
        on_refusal: OnRefusal = "raise",
        spans: bool = False,
    ) -> Self:
        """Make it for a tokenizer or processor in memory; see `Family.of` for the first arguments.

        Args:
            tokenizer: The tokenizer or processor.
            stop_ids: The ids that end a turn.
            template: The text or the name of a template.
            template_args: Variables for the template. One that it does not have is logged as a warning.
            policy: What to do with cut turns and odd stops.
            on_refusal: What follows a refusal.
            spans: Whether to ask which ids belong to which new message.

        Raises:
            InputError: The tokenizer has no chat template, or an argument is malformed.
        """
        check_on_refusal(on_refusal, get_args(OnRefusal))
        check_choices(stop_ids, policy)
        check_template(template, tokenizer)
        family = Family.of(tokenizer, stop_ids=stop_ids, template=template)
        if family.tokenizer.text_first and not family.tokenizer.sources:
            raise InputError(
                f"{type(tokenizer).__name__} has no chat template: set its chat_template, or give `template`"
            )
        log_unknown_variables(family, template_args or ())
        return cls(family, dict(template_args or {}), policy, on_refusal, spans)

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> list[int]:
        """Return the ids of a prompt that continues nothing, as the template writes it.

        Raises:
            InputError: There are media in the messages.
            TemplateRefused: The template rejects the messages.
        """
        if is_multimodal(messages):
            raise InputError("messages: there are images or other media, for which a tokenizer has no ids")
        return self.family.ids(
            messages, tools=tools or None, add_generation_prompt=True, **self.template_args
        )

    def extend(
        self,
        ids: Sequence[int],
        new_messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **known: Unpack[Known],
    ) -> Extension | Refusal:
        """Return the next prompt as `tito_core.Bridge.extend` does, and count it.

        Raises:
            InputError: An argument is malformed.
            RefusedError: There is a refusal, and `on_refusal` is "raise".
        """
        found = self._extended(ids, new_messages, tools, None, known)
        if isinstance(found, Refusal):
            return self.refuse(found)
        self.built["ids"] += 1
        return found

    def extend_with_images(
        self,
        ids: Sequence[int],
        new_messages: Sequence[Message],
        images: Sequence[Any] | None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        processor_args: Mapping[str, Any] | None = None,
        **known: Unpack[Known],
    ) -> WithImages[Extension] | Refusal:
        """Return the next prompt of a conversation with images, and count it.

        Args:
            ids: Ids of the last prompt and of its completion, with those of its images.
            new_messages: The messages after the turn, with names for images (see `integrations.images`).
            images: Their images. None: the placeholders stay, and those in `ids` are placeholders, too.
            tools: Tools that the template renders, None for none.
            processor_args: Further arguments of the processor's call.
            known: `media`, where images stand in `ids`, and what else `Bridge.extend` takes.

        Raises:
            InputError: An argument is malformed.
            RefusedError: There is a refusal, and `on_refusal` is "raise".
        """
        found = self._extended(ids, new_messages, tools, self.placeholders(tools), known)
        if isinstance(found, Refusal):
            return self.refuse(found)
        grown: WithImages[Extension] | Refusal = WithImages(prompt=found, inputs={})
        if images is not None:
            grown = self.family.expand(found, images, processor_args=processor_args)
        if isinstance(grown, Refusal):
            return self.refuse(grown)
        self.built["ids"] += 1
        return grown

    def placeholders(self, tools: Sequence[Mapping[str, Any]] | None = None) -> dict[str, list[int]]:
        """Return the ids that the template writes for an image; nothing if it takes none."""
        if not self.family.tokenizer.takes_images:
            return {}
        return self.family.placeholders(tools=tools or None, **self.template_args)

    def _extended(
        self,
        ids: Sequence[int],
        new_messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        media: PlaceholderIds | None,
        known: Known,
    ) -> Extension | Refusal:
        try:
            bridge = self.family.bridge(
                tools=tools, policy=self.policy, spans=self.spans, media=media, **self.template_args
            )
        except TemplateRefused as error:
            return Refusal(Reason.TEMPLATE_REFUSED, f"{error!s:.200}")
        return bridge.extend(ids, new_messages, **known)

    def refuse(self, refusal: Refusal) -> Refusal:
        """Count a refusal and log it; raises it as a `RefusedError` if `on_refusal` is "raise"."""
        self.refused[refusal.reason.name] += 1
        if self.on_refusal == "raise":
            raise RefusedError(refusal)
        _LOG.warning("%s: %s (%s)", refusal.reason.name, refusal.detail, self.on_refusal)
        return refusal
