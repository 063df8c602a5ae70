"""TRL: a `rollout_func` with tools for `GRPOTrainer`, for any chat template.

Relies on TRL 1.16: `trl/trainer/grpo_trainer.py`, whose `_generate` calls `rollout_func(prompts, trainer)`
and whose `_generate_single_turn` samples; `trl/chat_template_utils.py`, with `add_response_schema` and
`parse_response`; `trl/data_utils.py`, with `prepare_multimodal_messages`. For images see `trl_images.py`.
"""

from __future__ import annotations

import asyncio
import copy
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

from attrs import define, evolve, field

from tito_core import Extension, InputError, Ledger, Message, Reason, Refusal, Step
from tito_core.media.ranges import MediaRange
from tito_core.message import is_multimodal
from tito_core.samples import StoredCall
from tito_core.samples.whole_row import row_of
from tito_io.integrations.arguments import check_on_refusal
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.next_prompts import NextPrompts
from tito_io.integrations.trl_images import ImagePrompts
from tito_io.samples.forms.tito import write_calls

GIVEN = ("prompt_ids", "images", "multimodal_fields", "num_generations")
"""The arguments that `GRPOTrainer._generate_single_turn` gets here."""
TRAINER = "trl:GRPOTrainer"
SEAMS: Seams = {
    f"{TRAINER}._generate_single_turn": (*GIVEN, ...),
    f"{TRAINER}._get_per_token_logps_and_entropies": (
        *("model", "input_ids", "attention_mask", "logits_to_keep"),
        ...,
    ),
    "trl.chat_template_utils:add_response_schema": ("processing_class", ...),
    "trl.chat_template_utils:parse_response": ("tokenizer", "ids", "prefix", "tools", ...),
}
required("trl", SEAMS)

import torch
from transformers.utils.chat_template_utils import get_json_schema
from trl.chat_template_utils import add_response_schema, parse_response
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.utils import start_event_loop_in_daemon

NO_IMAGES = Refusal(Reason.MULTIMODAL, "TRL takes no images of tool results from a rollout function")

Parser: TypeAlias = Callable[[list[int], list[int]], Message]
"""Returns the assistant message of sampled ids, given these and the ids of the prompt."""

End: TypeAlias = Literal["answer", "length", "turns", "refused"]
"""Why a rollout ended: a reply without tool calls, a limit of ids or of turns, or a refusal."""


class Tools:
    """Python functions that a model may call, plain and async ones.

    Attributes:
        functions: The functions by name.
        schemas: Their JSON schemas, as templates take them.
        counts: How many `calls` there were, and how many of them were `failures`: the function is unknown, or
            it raised. A value such as `{"error": ...}` that a function returns is no failure.

    Raises:
        InputError: They are no list, or two have the same name.
    """

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        if callable(functions):
            raise InputError("tools is a function: give a list of functions, such as [multiply]")
        names = Counter(function.__name__ for function in functions)
        if twice := [name for name, count in names.items() if count > 1]:
            raise InputError(f"tools: there are several with the name {', '.join(twice)}: rename them")
        self.functions = {function.__name__: function for function in functions}
        self.schemas = [get_json_schema(function) for function in functions]
        self.counts: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        if any(map(iscoroutinefunction, functions)):  # one loop for life: connections of tools belong to it
            _, self._loop, ready = start_event_loop_in_daemon(name="tito-tools")
            ready.wait()

    def results(self, calls: Sequence[Mapping[str, Any]]) -> list[Message]:
        """Call tools, async ones at the same time; return one result for each call, in the order of calls."""
        values = [self._call(_function(call)) for call in calls]
        if self._loop is not None:
            values = asyncio.run_coroutine_threadsafe(_awaited(values), self._loop).result()
        self.counts["calls"] += len(values)
        self.counts["failures"] += sum(isinstance(value, _Failure) for value in values)
        return [
            {
                "role": "tool",
                "name": _function(call)["name"],
                "tool_call_id": call["id"],
                "content": value if _shows_media(value) else str(value),
            }
            for call, value in zip(calls, values, strict=True)
        ]

    def _call(self, function: Mapping[str, Any]) -> Any:
        arguments = function.get("arguments") or {}
        try:
            if function["name"] not in self.functions:
                raise LookupError(f"Tool {function['name']} not found.")  # noqa: TRY301  # one of the errors that a model reads
            given = json.loads(arguments) if isinstance(arguments, str) else arguments
            return self.functions[function["name"]](**given)
        except Exception as error:  # noqa: BLE001  # a tool may raise anything, and the model reads it as the result
            return _Failure(error=str(error))


class _Failure(dict[str, str]):
    """What a model reads where a call failed; a function may return an equal value."""


def _shows_media(value: Any) -> bool:
    """Return whether a tool's value is a list of content parts with media."""
    return isinstance(value, list) and is_multimodal([{"role": "tool", "content": value}])


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return name and arguments of a call, which some parsers do not nest."""
    found: Mapping[str, Any] = call.get("function", call)
    return found


async def _awaited(values: Sequence[Any]) -> list[Any]:
    return await asyncio.gather(*map(_value, values))


async def _value(value: Any) -> Any:
    try:
        return await value if isawaitable(value) else value
    except Exception as error:  # noqa: BLE001  # a tool may raise anything, and the model reads it as the result
        return _Failure(error=str(error))


@define(eq=False)
class Rollout:
    """One conversation while it is sampled.

    Attributes:
        prompt: The messages of the data set, with names for images.
        prompt_ids: The ids of the next prompt.
        images: The images of the first prompt.
        inputs: What the processor made of them.
        media: Where they stand in the ids, or why that is not known.
        steps: The turns so far.
        messages: The sampled turns, and the tool results that were put into prompts.
        ledger: Who wrote each id of the next prompt; None for the first one.
        end: Why it ended; None while it goes on.
    """

    prompt: Sequence[Message]
    prompt_ids: Sequence[int]
    images: Sequence[Any] = ()
    inputs: Mapping[str, Any] = field(factory=dict)
    media: Sequence[MediaRange] | Refusal = ()
    steps: list[Step] = field(factory=list, init=False)
    messages: list[Message] = field(factory=list, init=False)
    ledger: Ledger | None = field(default=None, init=False)
    end: End | None = field(default=None, init=False)

    @property
    def start(self) -> int:
        """How many ids the first prompt has."""
        return len(self.steps[0].prompt_ids if self.steps else self.prompt_ids)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls of the last turn."""
        found: list[dict[str, Any]] = self.messages[-1].get("tool_calls") or []
        return found

    def then(self, turn: Message, ids: list[int], logprobs: Sequence[float | None] | None) -> None:
        """Add a sampled turn."""
        calls = turn.get("tool_calls")
        if calls:  # Mistral's templates take ids of nine letters or digits, and no call without one
            before = sum(len(message.get("tool_calls") or ()) for message in self.messages)
            named = [
                {**call, "id": call.get("id") or f"{number:09d}"} for number, call in enumerate(calls, before)
            ]
            turn = {**turn, "tool_calls": named}
        history = [*self.prompt, *self.messages]
        known: dict[str, Any] = {} if self.ledger is None else {"prompt_ledger": self.ledger}
        self.steps.append(
            Step(
                prompt=history,
                completion=[turn],
                prompt_ids=self.prompt_ids,
                completion_ids=ids,
                logprobs=logprobs,
                media=() if isinstance(self.media, Refusal) else self.media,
                **known,
            )
        )
        self.messages.append(turn)

    def extended(
        self, prompts: NextPrompts, results: Sequence[Message], tools: Sequence[Mapping[str, Any]]
    ) -> Extension | Refusal:
        """Return the next prompt: all ids so far, and what the template writes for the results."""
        step = self.steps[-1]
        known: dict[str, Any] = {
            "turn": step.completion[0],
            "history": step.prompt,
            "sampled": len(step.completion_ids),
            "ledger": step.prompt_ledger,
        }
        if isinstance(self.media, Refusal) or is_multimodal(results):
            return prompts.refuse(self.media if isinstance(self.media, Refusal) else NO_IMAGES)
        if not self.images:
            return prompts.extend(step.ids, results, tools=tools, **known)
        found = prompts.extend_with_images(step.ids, results, (), tools=tools, media=self.media, **known)
        return found if isinstance(found, Refusal) else found.prompt

    def stored(self, stops: Sequence[int]) -> list[StoredCall]:
        """Return the turns as `tito samples` reads them; one without a stop at its end was cut short."""
        found = []
        for order, step in enumerate(self.steps, 1):
            cut = step.completion_ids[-1] not in stops
            finish = "length" if cut else "tool_calls" if step.completion[0].get("tool_calls") else "stop"
            stored = evolve(step, truncated=cut)
            found.append(StoredCall(name=f"turn-{order}", step=stored, order=order, finish_reason=finish))
        return found

    def columns(self) -> dict[str, Any]:
        """Return what the trainer reads of it. TRL wants 0.0 for each id that was not sampled."""
        row, start = row_of(self.steps[-1], self.steps), self.start
        pairs = zip(row.logprobs, row.loss_mask, strict=True)
        logprobs = [value if sampled else 0.0 for value, sampled in pairs]
        return {
            "prompt_ids": row.input_ids[:start].tolist(),
            "completion_ids": row.input_ids[start:].tolist(),
            "logprobs": None if self.steps[-1].logprobs is None else logprobs[start:],
            "env_mask": list(row.loss_mask[start:]),
            "rollout_messages": self.messages,
            "rollout_end": self.end,
        }


class ToolRollout:
    """A `rollout_func` for `GRPOTrainer` that runs tools, and builds each prompt from the ids before it.

    Sampled ids come back unchanged, and they alone have `env_mask` 1. The chat template of the trainer's
    `processing_class` is used as it is. Limits are the trainer's: `max_completion_length` for all ids after
    the first prompt, `max_tool_calling_iterations`, and the context of model and engine.

    Reward functions get two more arguments. `rollout_messages` has the sampled turns and the tool results of
    each rollout. `rollout_end` says why it ended: "answer" (no tool calls), "length", "turns" or "refused".

        trainer = GRPOTrainer(..., rollout_func=ToolRollout([multiply]))

    Args:
        tools: Functions with type hints and a docstring, as `GRPOTrainer` takes them. Give them here only.
        parse: Returns the assistant message of sampled ids, given these and the prompt's. It may raise
            `ValueError`: the reply is kept as text, and the rollout ends. None: TRL's parser, which does so,
            too.
        on_refusal: What to do where the next prompt cannot be built from the ids: "end" the rollout with the
            turns that it has, or "raise".
        calls: A file to which the calls of all rollouts are written, batch by batch, for `tito samples` and
            `tito audit`. What it held is replaced at the first rollout. None writes none.

    Raises:
        InputError: `on_refusal` is something else, `tools` is no list, or two tools have the same name.
    """

    def __init__(
        self,
        tools: Sequence[Callable[..., Any]] = (),
        *,
        parse: Parser | None = None,
        on_refusal: Literal["end", "raise"] = "end",
        calls: str | Path | None = None,
    ) -> None:
        check_on_refusal(on_refusal, ("end", "raise"))
        self.tools = Tools(tools)
        self._calls = None if calls is None else Path(calls)
        self._stored = 0
        self._given = parse
        self._on_refusal: Literal["end", "raise"] = on_refusal
        self._trainer: Any = None

    @property
    def built(self) -> int:
        """How many prompts were built from ids."""
        return 0 if self._trainer is None else self._prompts.built["ids"]

    @property
    def refused(self) -> Counter[str]:
        """How many were refused, by the name of the reason."""
        return Counter() if self._trainer is None else self._prompts.refused

    def __call__(self, prompts: Sequence[str | Sequence[Message]], trainer: Any) -> dict[str, Any]:
        """Return one rollout for each prompt, as `GRPOTrainer` reads them.

        Raises:
            InputError: The trainer has tools of its own, a prompt is a text, TRL has no parser for the chat
                template, images are in no column of the data set, or several processes would write `calls`.
            TemplateRefused: The chat template rejects a prompt of the data set.
            RefusedError: A prompt cannot be built from the ids, and `on_refusal` is "raise".
        """
        if trainer is not self._trainer:
            self._attach(trainer)
        rollouts = [self._begun(prompt) for prompt in prompts]
        self._images.forget()
        self.tools.counts.clear()
        active, turns = rollouts, 0
        while active:
            for group, fields in self._images.groups(active, together=self._trainer.use_vllm):
                self._sample(group, fields)
            active = [rollout for rollout in active if self._calls_tools(rollout, turns)]
            active = self._extended(active)
            turns += 1
        if self.tools.functions:
            self._log_tools(len(rollouts))
        if self._calls is not None:
            self._store(rollouts, self._calls)
        columns = [rollout.columns() for rollout in rollouts]
        found: dict[str, Any] = {name: [column[name] for column in columns] for name in columns[0]}
        if None in found["logprobs"]:
            found["logprobs"] = None  # the trainer's own model samples without
        return found

    def _store(self, rollouts: Sequence[Rollout], path: Path) -> None:
        """Write the calls of a batch: to an empty file first, and then behind those that it has."""
        with path.open("ab" if self._stored else "wb") as file:
            for number, rollout in enumerate(rollouts, self._stored + 1):
                write_calls(file, f"rollout-{number}", rollout.stored(self._trainer.eos_token_ids))
        self._stored += len(rollouts)

    def _log_tools(self, rollouts: int) -> None:
        """Log what TRL's own loop logs of tools (the end of `GRPOTrainer._generate`), over all processes."""
        trainer, counts = self._trainer, self.tools.counts
        own = [[counts["calls"], counts["failures"], rollouts]]
        device = trainer.accelerator.device
        calls, failures, count = trainer.accelerator.gather(torch.tensor(own, device=device)).sum(0).tolist()
        metrics = trainer._metrics["train" if trainer.model.training else "eval"]  # noqa: SLF001  # TRL has no public way
        metrics["tools/call_frequency"].append(calls / count)
        metrics["tools/failure_frequency"].append(failures / calls if calls else 0.0)

    def _attach(self, trainer: Any) -> None:
        """Take tokenizer, stop ids and limits from the trainer."""
        if trainer.tools or trainer.environment_factories:
            raise InputError("tools: give them to ToolRollout alone; GRPOTrainer would run its own loop, too")
        if self._calls is not None and trainer.accelerator.num_processes > 1:
            raise InputError("calls: several processes would write the same file; leave it out")
        self._prompts = NextPrompts.of(
            trainer.processing_class,
            stop_ids=trainer.eos_token_ids,
            template_args=trainer.chat_template_kwargs,
            on_refusal=self._on_refusal,
        )
        self._images = ImagePrompts(self._prompts)
        if self._prompts.family.tokenizer.takes_images:
            scored = trainer._get_per_token_logps_and_entropies  # noqa: SLF001  # TRL has no public one
            trainer._get_per_token_logps_and_entropies = self._images.watch(scored)  # noqa: SLF001  # likewise
        self._parse = self._given or self._parser(trainer)
        limits = (
            getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None),
            trainer.args.vllm_max_model_length,
        )
        self._context = min((limit for limit in limits if limit is not None), default=sys.maxsize)
        self._trainer = trainer

    def _parser(self, trainer: Any) -> Parser:
        """Return TRL's parser. A copy of the tokenizer gets its template: rewards are as without it."""
        tokenizer = copy.copy(trainer._tokenizer)  # noqa: SLF001  # the tokenizer in a processor
        if not self.tools.functions:
            return lambda ids, _: self._text(ids)
        if not (getattr(tokenizer, "response_template", None) or getattr(tokenizer, "response_schema", None)):
            tokenizer.chat_template = trainer.processing_class.chat_template
            try:
                add_response_schema(tokenizer)
            except ValueError as error:
                raise InputError(
                    "parse: TRL has no parser for this chat template; give one, or set the tokenizer's"
                    " response_template"
                ) from error
        return partial(parse_response, tokenizer, tools=list(self.tools.functions.values()))

    def _begun(self, prompt: str | Sequence[Message]) -> Rollout:
        if isinstance(prompt, str):
            raise InputError("prompt: give a list of messages, and not a text")
        if is_multimodal(prompt):
            if not self._prompts.family.tokenizer.takes_images:
                raise InputError("prompt: there are images, and the trainer's processing_class takes none")
            found = self._images.first(prepare_multimodal_messages(list(prompt)), self.tools.schemas)
            return Rollout(found.messages, found.ids, found.images, found.inputs, found.media)
        ids = self._prompts.family.ids(
            prompt,
            tools=self.tools.schemas or None,
            add_generation_prompt=True,
            **self._prompts.template_args,
        )
        return Rollout(prompt, ids)

    def _sample(self, rollouts: Sequence[Rollout], fields: Mapping[str, Any]) -> None:
        """Sample a turn of each rollout in one call, cut where TRL cuts: at the limit of ids."""
        asked = [list(rollout.prompt_ids) for rollout in rollouts]
        shown = [list(rollout.images) or None for rollout in rollouts]
        images = shown if any(shown) else None
        sampled, logprobs = self._trainer._generate_single_turn(asked, images, fields, 1)  # noqa: SLF001  # the seam
        for number, rollout in enumerate(rollouts):
            room = self._room(rollout, len(asked[number]))
            ids = list(sampled[number][:room])
            try:
                turn = self._parse(ids, asked[number])
            except ValueError:
                turn = self._text(ids)
            rollout.then(turn, ids, None if logprobs is None else logprobs[number][:room])

    def _text(self, ids: list[int]) -> Message:
        text = self._trainer._tokenizer.decode(ids, skip_special_tokens=True)  # noqa: SLF001  # the tokenizer in a processor
        return {"role": "assistant", "content": text}

    def _room(self, rollout: Rollout, length: int) -> int:
        """Return how many more ids the trainer takes, after `length` ids with the first prompt."""
        found: int = rollout.start + self._trainer.max_completion_length - length
        return found

    def _calls_tools(self, rollout: Rollout, turns: int) -> bool:
        """Return whether the last turn's tools are to be called; if not, say why the rollout ended."""
        ids = rollout.steps[-1].ids
        if not rollout.calls:
            rollout.end = "answer" if ids[-1] in self._trainer.eos_token_ids else "length"
        elif self._room(rollout, len(ids)) < 1:
            rollout.end = "length"
        elif turns >= self._trainer.max_tool_calling_iterations:
            rollout.end = "turns"
        return rollout.end is None

    def _extended(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Run the tools and build the next prompts; return the rollouts that have one."""
        results = iter(self.tools.results([call for rollout in rollouts for call in rollout.calls]))
        for rollout in rollouts:
            answers = list(islice(results, len(rollout.calls)))
            found = rollout.extended(self._prompts, answers, self.tools.schemas)
            if isinstance(found, Refusal):
                rollout.end = "refused"
            elif self._room(rollout, len(found.ids)) < 1 or len(found.ids) >= self._context:
                rollout.end = "length"
            else:
                rollout.prompt_ids, rollout.ledger = found.ids, found.ledger
                rollout.messages += answers
        return [rollout for rollout in rollouts if rollout.end is None]
