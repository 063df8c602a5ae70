"""Prompt ids for the chat servers of NeMo-RL, from the ids of the last turn and the messages after it.

Seam: `replace_prefix_tokens` of `nemo_rl/models/generation/openai_server_utils.py` in NVIDIA-NeMo/RL 7ea279a.
`vllm/vllm_worker_async.py` beside it reads `required_prefix_token_ids`. Nothing of NeMo-RL is imported: the
package index has only a placeholder of that name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define

from tito_core import InputError, Message, Reason, Refusal

from .arguments import with_objects
from .next_prompts import NextPrompts, RefusedError
from .shared_prompts import SharedPrompts

TOKEN_FIELDS = ("prompt_token_ids", "generation_token_ids", "generation_log_probs", "routed_experts")
"""Fields by which NeMo Gym hands the ids of a turn from one request to the next, on its message."""


@define(eq=False)
class ServerPrompts(SharedPrompts):
    """Builds the prompt ids of chat requests that continue a sampled turn; it may be shared by threads.

    Attributes:
        stop_ids: The ids that end a turn; None: see `Family.of`.
        policy: What to do with cut turns and odd stops.
        on_refusal: "raise" a `RefusedError`; or "rerender": the prompt becomes a fresh render. NeMo-RL's
            trainer accepts that only if it still begins with the ids of the turn.

    Raises:
        InputError: `on_refusal` is another choice, such as "end".
    """

    def replace_prefix_tokens(
        self,
        tokenizer: Any,
        model_prefix_token_ids: Sequence[int],
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the prompt that begins with the model's own ids.

        What NeMo-RL's function of this name does with two whole renders, from the messages instead: no end of
        turn is searched for, so that a turn may end without its stop, and with any stop.

        Args:
            tokenizer: A tokenizer with a chat template.
            model_prefix_token_ids: The ids up to the end of the last assistant message; none for a first
                prompt.
            messages: The messages of the request. Ids on them are not rendered. Arguments of tool calls that
                are JSON texts become objects, as in vLLM.
            tools: The tools that the template renders.
            template_args: Variables for the template.

        Raises:
            InputError: The tokenizer has no chat template, no message is the turn that the ids end with, or a
                first prompt has images.
            RefusedError: There is a refusal, and `on_refusal` is "raise" or the messages have images.
        """
        prompts = self.of(tokenizer, template_args or {})
        plain = [_rendered(message) for message in messages]
        if not model_prefix_token_ids:
            return prompts.render(plain, tools=tools)
        turn = max(
            (at for at, message in enumerate(plain) if message.get("role") == "assistant"), default=None
        )
        if turn is None:
            raise InputError("messages have no assistant message: model_prefix_token_ids end with one")
        return self._continued(prompts, list(model_prefix_token_ids), plain, turn, tools)

    def prompt_token_ids(self, tokenizer: Any, request: Mapping[str, Any]) -> list[int]:
        """Return the prompt ids of a chat request, whose last turn has its ids.

        They are the request's `required_prefix_token_ids`, or else the `prompt_token_ids` and
        `generation_token_ids` of the last message that has them. A request with neither is rendered.

        Args:
            tokenizer: A tokenizer with a chat template.
            request: The body of the request, with `messages` and perhaps `tools` and `chat_template_kwargs`.

        Raises:
            InputError: As in `replace_prefix_tokens`; or the request asks for no generation prompt.
            RefusedError: As in `replace_prefix_tokens`.
        """
        if request.get("add_generation_prompt") is False or request.get("continue_final_message"):
            raise InputError("add_generation_prompt is false: ids are only built for a new assistant turn")
        messages, tools = request.get("messages"), request.get("tools")
        if not isinstance(messages, list):
            raise InputError("the request has no messages: give the body of a chat request")
        template_args = request.get("chat_template_kwargs") or {}
        ids, turn = request.get("required_prefix_token_ids"), _sampled_turn(messages)
        if ids is not None or turn is None:
            return self.replace_prefix_tokens(
                tokenizer, ids or [], messages, tools=tools, template_args=template_args
            )
        sampled = messages[turn]
        return self._continued(
            self.of(tokenizer, template_args),
            [*sampled["prompt_token_ids"], *sampled["generation_token_ids"]],
            [_rendered(message) for message in messages],
            turn,
            tools,
            sampled=len(sampled["generation_token_ids"]),
        )

    def _continued(
        self,
        prompts: NextPrompts,
        ids: list[int],
        messages: list[dict[str, Any]],
        turn: int,
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        sampled: int | None = None,
    ) -> list[int]:
        """Return `ids`, then what the template writes for the messages after the turn."""
        found = self.extend(
            prompts,
            ids,
            messages[turn + 1 :],
            tools=tools,
            turn=messages[turn],
            history=messages[:turn],
            sampled=sampled,
        )
        if not isinstance(found, Refusal):
            return found.ids.tolist()
        if found.reason is Reason.MULTIMODAL:
            raise RefusedError(found)  # a tokenizer has no ids for images
        return prompts.render(messages, tools=tools)


def _sampled_turn(messages: Sequence[Message]) -> int | None:
    """Return the place of the last message that has its ids."""
    both = TOKEN_FIELDS[:2]
    places = (at for at, one in enumerate(messages) if all(one.get(name) is not None for name in both))
    return max(places, default=None)


def _rendered(message: Message) -> dict[str, Any]:
    """Return a message as vLLM hands it to a template: arguments of calls are objects."""
    return with_objects({name: value for name, value in message.items() if name not in TOKEN_FIELDS})
