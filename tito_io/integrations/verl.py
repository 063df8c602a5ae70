"""Continuous Token builders for verl, from the chat template of any model instead of code per family.

Seam: `utils/tokenizer/continuous_token.py` (`ContinuousTokenBuilder`, `VLContinuousTokenMixin`,
`MergeResult`) and `utils/tokenizer/continuous_token_wiring.py` (the table of builders) of verl 0.9.1. In verl
0.9.0 `merge_context_tokens` is named `merge_non_assistant_tokens`, and there are no builders for images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Self

from attrs import define

from tito_core import Extension, InputError, Message, Policy, Reason, Refusal
from tito_core.message import is_multimodal
from tito_core.seams.seam import common_prefix
from tito_io.families.images import ranges_in
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.images import Shown
from tito_io.integrations.known_media import Known, KnownMedia
from tito_io.integrations.next_prompts import KEEP, NextPrompts, RefusedError
from tito_io.integrations.shared_prompts import OnRefusal, SharedPrompts

TABLE = "_CONTINUOUS_TOKEN_BUILDER_REGISTRY"
BUILDERS = "verl.utils.tokenizer.continuous_token:ContinuousTokenBuilder"
SEAMS: Seams = {
    f"verl.utils.tokenizer.continuous_token_wiring:{TABLE}": None,
    f"{BUILDERS}.build_initial_tokens": ("messages", ...),
    f"{BUILDERS}._assert_append_only": (...,),
}
required("verl", SEAMS)

from verl.utils.tokenizer import continuous_token, continuous_token_wiring
from verl.utils.tokenizer.continuous_token import ContinuousTokenBuilder, MergeResult

_WITH_IMAGES = getattr(continuous_token, "VLContinuousTokenMixin", None)
UNKNOWN = Refusal(
    Reason.MULTIMODAL, "it is not known where the images stand in the ids: they were made elsewhere"
)
UNCLEAR = Refusal(Reason.MULTIMODAL, "it is not clear where the images stand in the first prompt")


Tools = list[dict[str, Any]] | None
"""The tools that a template renders."""


class BridgedMerges:
    """The merge of context with tito's bridge, which is mixed into builders of verl."""

    shared: SharedPrompts
    prompts: NextPrompts

    def merge_context_tokens(
        self,
        previous_messages: list[Message],
        updated_messages: list[Message],
        runtime_token_ids: list[int],
        *,
        tools: Tools = None,
    ) -> MergeResult:
        """Return the ids so far, then what the template writes for the messages that were appended.

        `inserted_token_ids` is the part of the turn's close that was missing, `appended_token_count` the
        number of ids after it. A sampled id is removed only if the policy replaces odd stops. New images are
        in their messages, and are the only ones that are processed.

        Args:
            previous_messages: The messages that the ids stand for; the last one is the sampled turn.
            updated_messages: The same, and the new messages.
            runtime_token_ids: The ids so far.
            tools: The tools that the template renders.

        Raises:
            ValueError: The messages were not only appended to, or a role may not be appended.
            InputError: There is no message that the ids could stand for.
            RefusedError: There is a refusal, and `on_refusal` is "raise"; or the messages have images, and
                the builder is one for text.
        """
        builder: Any = self
        builder._assert_append_only(previous_messages, updated_messages)  # noqa: SLF001  # verl's own check
        new = updated_messages[len(previous_messages) :]
        if not new:
            return MergeResult(token_ids=list(runtime_token_ids), appended_token_count=0)
        if not previous_messages:
            raise InputError("previous_messages is empty: give the messages up to the sampled turn")
        found = self._extended(previous_messages, new, runtime_token_ids, tools)
        if isinstance(found, Refusal):
            given = previous_messages, updated_messages, runtime_token_ids, tools
            return self._after_refusal(found, *given)
        return MergeResult(
            token_ids=found.ids.tolist(),
            inserted_token_ids=list(found.inserted_close),
            appended_token_count=len(found.added) - len(found.inserted_close),
            removed_prefix_token_count=0 if found.replaced_stop is None else 1,
        )

    def _extended(
        self, previous: list[Message], new: list[Message], ids: list[int], tools: Tools
    ) -> Extension | Refusal:
        turn, history = previous[-1], previous[:-1]
        return self.shared.extend(self.prompts, ids, new, tools=tools, turn=turn, history=history)

    def _after_refusal(
        self,
        refusal: Refusal,
        previous: list[Message],
        updated: list[Message],
        ids: list[int],
        tools: Tools,
    ) -> MergeResult:
        raise NotImplementedError


class TitoContinuousTokenBuilder(BridgedMerges, ContinuousTokenBuilder):
    """A Continuous Token builder that merges new messages with tito's bridge.

    Only the merge of context is its own: `build_initial_tokens`, `merge_assistant_tokens` and
    `align_response_metadata` are those of verl.

    Args:
        tokenizer: A tokenizer with a chat template.
        shared: Choices and bridges that builders have in common; None: `SharedPrompts()`.
        options: Options of verl's builders, such as `chat_template_kwargs` and `allowed_append_roles`.

    Raises:
        InputError: The tokenizer has no chat template.
    """

    def __init__(self, tokenizer: Any, *, shared: SharedPrompts | None = None, **options: Any) -> None:
        super().__init__(tokenizer, **options)
        self.shared = shared or SharedPrompts()
        self.prompts = self.shared.of(tokenizer, self.chat_template_kwargs)

    merge_non_assistant_tokens = BridgedMerges.merge_context_tokens

    def _after_refusal(
        self,
        refusal: Refusal,
        previous: list[Message],  # noqa: ARG002  # all messages are rendered
        updated: list[Message],
        ids: list[int],
        tools: Tools,
    ) -> MergeResult:
        """Return a fresh render; the ids after the first difference are removed, and so not trained."""
        if refusal.reason is Reason.MULTIMODAL:
            raise RefusedError(refusal)  # a tokenizer has no ids for images
        fresh = self.build_initial_tokens(updated, tools=tools)
        kept = common_prefix(ids, fresh)
        return MergeResult(
            token_ids=fresh,
            appended_token_count=len(fresh) - kept,
            removed_prefix_token_count=len(ids) - kept,
        )


class TitoImages(BridgedMerges):
    """A builder of verl for models with images that merges context by ids.

    It is mixed into verl's builder of a family, whose other methods stay. After a refusal the merge is that
    builder's own, if `on_refusal` is "rerender": a fresh render of all images would not have the ids of the
    first prompt, for which verl may have resized them.

    Args:
        tokenizer: A tokenizer.
        processor: Its processor, with a chat template.
        shared: Choices and bridges that builders have in common; None: `SharedPrompts()`.
        options: Options of verl's builders, such as `mm_processor_kwargs`.

    Raises:
        InputError: The processor has no chat template.
    """

    mm_processor_kwargs: dict[str, Any]
    chat_template_kwargs: dict[str, Any]

    def __init__(
        self, tokenizer: Any, processor: Any, *, shared: SharedPrompts | None = None, **options: Any
    ) -> None:
        super().__init__(tokenizer, processor, **options)  # type: ignore[call-arg]  # verl's builder, which is mixed in
        self.shared = shared or SharedPrompts()
        self.prompts = self.shared.of(processor, self.chat_template_kwargs)
        self.known = KnownMedia()

    def build_initial_tokens(
        self,
        messages: list[Message],
        *,
        tools: Tools = None,
        images: list[Any] | None = None,
        **others: Any,
    ) -> list[int]:
        """Return what verl's builder returns, and remember where the images stand."""
        own: Any = super()
        ids: list[int] = own.build_initial_tokens(messages, tools=tools, images=images, **others)
        if is_multimodal(messages):
            self.known.keep(ids, self._placed(messages, images or [], ids, tools))
        return ids

    def _placed(self, messages: list[Message], images: list[Any], ids: list[int], tools: Tools) -> Known:
        """Return where the images stand in the ids of a first prompt."""
        shown = Shown.of(messages, images)
        found = self.prompts.family.collapsed_prompt(
            shown.messages, tools=tools or None, **self.prompts.template_args
        )
        return found if isinstance(found, Refusal) else ranges_in(found, ids) or UNCLEAR

    def _extended(
        self, previous: list[Message], new: list[Message], ids: list[int], tools: Tools
    ) -> Extension | Refusal:
        if is_multimodal([*previous, *new]):
            return self._with_images(previous, new, ids, tools)
        return super()._extended(previous, new, ids, tools)

    def _after_refusal(
        self,
        refusal: Refusal,  # noqa: ARG002  # verl answers it, whatever it is
        previous: list[Message],
        updated: list[Message],
        ids: list[int],
        tools: Tools,
    ) -> MergeResult:
        """Return the merge of verl's builder."""
        own: Any = super(BridgedMerges, self)
        merged: MergeResult = own.merge_context_tokens(previous, updated, ids, tools=tools)
        return merged

    def _with_images(
        self,
        previous_messages: list[Message],
        new: list[Message],
        ids: list[int],
        tools: Tools,
    ) -> Extension | Refusal:
        """Return the next prompt of a conversation with images."""
        media = self.known.find(ids) if is_multimodal(previous_messages) else ()
        if media is None or isinstance(media, Refusal):
            return self.prompts.refuse(media or UNKNOWN)
        past, shown = Shown.of(previous_messages, names=[one.identity for one in media]), Shown.of(new)
        found = self.shared.extend_with_images(
            self.prompts,
            ids,
            shown.messages,
            shown.images,
            tools=tools,
            processor_args={"return_tensors": "pt", **self.mm_processor_kwargs},
            turn=past.messages[-1],
            history=past.messages[:-1],
            media=media,
        )
        if isinstance(found, Refusal):
            return found
        self.known.keep(found.prompt.ids, tuple(found.prompt.media))
        return found.prompt


@define(eq=False)
class Installation:
    """tito's builders in verl's table; a context manager that puts verl's own back.

    Attributes:
        shared: What its builders share.
        replaced: The builders that stood there before, by family.
    """

    shared: SharedPrompts
    replaced: dict[Any, type[Any]]

    @property
    def built(self) -> Counter[str]:
        """How many merges were built from ids."""
        return self.shared.built

    @property
    def refused(self) -> Counter[str]:
        """How many merges were refused, by the name of the reason."""
        return self.shared.refused

    def uninstall(self) -> None:
        """Put verl's own builders back; builders that were made stay what they are."""
        _table().update(self.replaced)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.uninstall()


def install(
    *,
    stop_ids: Sequence[int] | None = None,
    policy: Policy = KEEP,
    on_refusal: OnRefusal = "raise",
) -> Installation:
    """Make tito's builder that of every family whose prompts come from a chat template.

    These are verl's families of text models and of models with images, and its defaults for models that it
    does not know. Builders that render otherwise stay: those of DeepSeek-V4 and DeepSeek-VL2, which have no
    chat template, and that of MiniMax-VL.

    It holds for this process; Ray workers need the environment variable VERL_USE_EXTERNAL_MODULES.

    Args:
        stop_ids: The ids that end a turn; None: those of the `generation_config.json` in the folder that the
            tokenizer was loaded from, else its `eos_token_id`.
        policy: What to do with cut turns and odd stops.
        on_refusal: "raise" a `RefusedError`; or "rerender": the prompt becomes a fresh render, and sampled
            ids from the first difference on no longer train. For models with images, the merge is verl's own.

    Raises:
        InputError: `on_refusal` is another choice, or tito's builders are installed already.
    """
    shared = SharedPrompts(stop_ids, policy, on_refusal)

    class Installed(TitoContinuousTokenBuilder):
        def __init__(self, tokenizer: Any, **options: Any) -> None:
            super().__init__(tokenizer, shared=shared, **options)

    table = _table()
    if any(issubclass(builder, TitoContinuousTokenBuilder | TitoImages) for builder in table.values()):
        raise InputError("tito's builders are installed already: call `uninstall` of that installation first")
    base = ContinuousTokenBuilder.build_initial_tokens  # its prompts are what the chat template renders
    text = {family: builder for family, builder in table.items() if builder.build_initial_tokens is base}
    shown = {family: builder for family, builder in table.items() if _renders_by_processor(builder)}
    table.update(dict.fromkeys(text, Installed))
    table.update({family: _with_images(builder, shared) for family, builder in shown.items()})
    return Installation(shared, {**text, **shown})


def _with_images(builder: type[Any], shared: SharedPrompts) -> type[Any]:
    """Return verl's builder of a family of models with images, with tito's merge."""

    class Installed(TitoImages, builder):
        def __init__(self, tokenizer: Any, processor: Any, **options: Any) -> None:
            super().__init__(tokenizer, processor, shared=shared, **options)

    return Installed


def _table() -> dict[Any, type[Any]]:
    """Return verl's builders by family."""
    table: dict[Any, type[Any]] = getattr(continuous_token_wiring, TABLE)
    return table


def _renders_by_processor(builder: type[Any]) -> bool:
    """Tell whether a builder's prompts are what a processor makes of the chat template's text."""
    if _WITH_IMAGES is None or not issubclass(builder, _WITH_IMAGES):
        return False
    names = ("build_initial_tokens", "render_tokens_with_mm")
    return all(getattr(builder, name) is getattr(_WITH_IMAGES, name) for name in names)
