"""TRL: what a model with images needs beside ids, to sample and in the trainer's forward pass.

Relies on TRL 1.16: `trl/trainer/grpo_trainer.py`. Its `_generate_and_score_completions` takes the images of
the data set, and renders prompts again for what a processor says of each id, such as `mm_token_type_ids`. The
tools of a `rollout_func` are missing in that render, so that these values are made from the ids instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from attrs import define, field, frozen

from tito_core import InputError, Message, Refusal
from tito_core.media.ranges import MediaRange
from tito_io.integrations.images import Shown
from tito_io.integrations.next_prompts import NextPrompts

TENSORS = {"return_tensors": "pt"}
Fields = Mapping[str, Any]


@frozen(eq=False)
class ImagePrompt:
    """A first prompt with images.

    Attributes:
        messages: Its messages, with names for images.
        ids: Its ids, with those of images.
        images: The images.
        inputs: What the processor made of them.
        media: Where they stand in the ids, or why that is not known.
    """

    messages: Sequence[Message]
    ids: Sequence[int]
    images: list[Any]
    inputs: Fields
    media: tuple[MediaRange, ...] | Refusal


@define(eq=False)
class ImagePrompts:
    """Makes first prompts with images, and what a model needs beside their ids.

    Attributes:
        prompts: The processor and its template.
        marked: The ids that the processor marks as an image's, by the name of the mark.
        ids: The ids of which images have most.
    """

    prompts: NextPrompts
    marked: dict[str, set[int]] = field(factory=dict, init=False)
    ids: set[int] = field(factory=set, init=False)
    _known: dict[str, ImagePrompt] = field(factory=dict, init=False, repr=False)

    def first(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> ImagePrompt:
        """Return the prompt of messages. Equal messages with equal images are processed once.

        Where it is not known where the images stand, the prompt is what TRL asks its processor for, and it
        cannot be extended.

        Raises:
            InputError: The processor says something of each id that cannot be made from the ids.
            TemplateRefused: The template rejects the messages.
        """
        shown = Shown.of(messages)
        key = repr(shown.messages)
        if key not in self._known:
            self._known[key] = self._prompt(messages, shown, tools)
        return self._known[key]

    def forget(self) -> None:
        """Drop the prompts that were made."""
        self._known.clear()

    def _prompt(
        self, messages: Sequence[Message], shown: Shown, tools: Sequence[Mapping[str, Any]]
    ) -> ImagePrompt:
        prompts = self.prompts
        found = prompts.family.first_prompt(
            shown.messages, shown.images, tools=tools or None, processor_args=TENSORS, **prompts.template_args
        )
        if isinstance(found, Refusal):
            return self._own(messages, shown, tools, found)
        for one in found.media:  # line ends and the like may belong to an image, too
            ((most, _),) = Counter(found.ids[one.offset : one.stop]).most_common(1)
            self.ids.add(most)
        self._mark(found.ids, found.positions)
        return ImagePrompt(shown.messages, found.ids, shown.images, found.inputs, found.media)

    def _own(
        self,
        messages: Sequence[Message],
        shown: Shown,
        tools: Sequence[Mapping[str, Any]],
        refusal: Refusal,
    ) -> ImagePrompt:
        """Return what TRL asks its processor for (`_tokenize_prompts`)."""
        given = self.prompts.family.tokenizer.given.apply_chat_template(
            conversation=[messages],
            tools=list(tools) or None,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            **self.prompts.template_args,
        )
        ids = list(given["input_ids"][0])
        inputs = {name: given[name] for name in given if name not in ("input_ids", "attention_mask")}
        self._mark(ids, {name: value[0] for name, value in inputs.items() if _is_of_ids(value, len(ids))})
        return ImagePrompt(shown.messages, ids, shown.images, inputs, refusal)

    def _mark(self, prompt_ids: Sequence[int], positions: Mapping[str, Sequence[Any]]) -> None:
        """Learn which ids the processor marks as those of images."""
        for name, values in positions.items():
            pairs = list(zip(prompt_ids, values, strict=True))
            ids = {index for index, value in pairs if value == 1}
            self.ids |= ids
            if any(value != (index in ids) for index, value in pairs):
                raise InputError(
                    f"images: the processor's {name} does not follow from the ids, and TRL makes it without"
                    " these tools; give the tools to GRPOTrainer, and no rollout_func"
                )
            self.marked.setdefault(name, set()).update(ids)

    def groups(
        self, rollouts: Sequence[Any], *, together: bool
    ) -> Iterator[tuple[list[Any], dict[str, Any]]]:
        """Yield rollouts that can be sampled in one call, and what the model needs beside their ids.

        Rollouts are `together` where an engine takes the images themselves.
        """
        if together:
            yield list(rollouts), {}
            return
        groups: dict[str | int, list[Any]] = {}
        for place, rollout in enumerate(rollouts):
            groups.setdefault(_shape(rollout) or place, []).append(rollout)
        for group in groups.values():
            yield group, self._fields(group)

    def _fields(self, rollouts: Sequence[Any]) -> dict[str, Any]:
        """Return what the model needs beside the ids of rollouts whose arrays have one shape."""
        given = [rollout.inputs for rollout in rollouts]
        if len(given) == 1 and isinstance(rollouts[0].media, Refusal):
            return dict(given[0])
        joined = {name: _joined([one[name] for one in given]) for name in given[0]}
        marks = {
            name: [[int(index in ids) for index in rollout.prompt_ids] for rollout in rollouts]
            for name, ids in self.marked.items()
        }
        return {**joined, **marks} if joined else {}

    def watch(self, scored: Callable[..., Any]) -> Callable[..., Any]:
        """Return `_get_per_token_logps_and_entropies` of a trainer, with marks that are made from the ids."""

        def with_marks(model: Any, input_ids: Any, *rest: Any, **fields: Any) -> Any:
            torch: Any = import_module("torch")
            shown = torch.isin(input_ids, _tensor(torch, self.ids, input_ids)).any()
            if shown and all(fields.get(name) is None for name in fields if "pixel" in name):
                raise InputError(
                    "images: TRL passes those of the data set's column `images` to the model, and none that"
                    " stand in messages alone; put them into that column"
                )
            for name, ids in self.marked.items():
                if fields.get(name) is not None:
                    marks = torch.isin(input_ids, _tensor(torch, ids, input_ids))
                    fields[name] = marks.to(fields[name].dtype)
            return scored(model, input_ids, *rest, **fields)

        return with_marks


def _is_of_ids(value: Any, count: int) -> bool:
    """Return whether a value of a processor is a list of as many numbers as there are ids."""
    return isinstance(value, list) and isinstance(value[0], list) and len(value[0]) == count


def _shape(rollout: Any) -> str | None:
    """Return what rollouts share whose arrays can be joined; None for one that is sampled alone."""
    arrays = all(hasattr(one, "shape") for one in rollout.inputs.values())
    if rollout.inputs and (isinstance(rollout.media, Refusal) or not arrays):
        return None
    return repr(sorted((name, tuple(one.shape[1:])) for name, one in rollout.inputs.items()))


def _joined(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else import_module("torch").cat(list(values))


def _tensor(torch: Any, ids: set[int], like: Any) -> Any:
    return torch.tensor(sorted(ids), device=like.device, dtype=like.dtype)
