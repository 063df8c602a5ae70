"""Request bodies for SGLang, under SGLang's names for everything.

The OpenAI routes ignore keys that they do not know, so that they accept a misspelt key. Hence the checks.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tito_core import Message
from tito_io.engines import turn_request
from tito_io.engines.http_engine import ServedModel, TurnAfterIds
from tito_io.engines.openai_fields import rendering_keys, sampling_keys, wire_messages
from tito_io.engines.protocol import Rendering, Sampling
from tito_io.engines.routing import new_request_id, routing_name

Route = Literal["generate", "chat", "completions"]
ROUTES: tuple[Route, ...] = ("generate", "chat", "completions")
"""How ids go in."""

GENERATE, CHAT, COMPLETIONS = "/generate", "/v1/chat/completions", "/v1/completions"
PATHS: Mapping[Route, str] = {"generate": GENERATE, "chat": CHAT, "completions": COMPLETIONS}

REASONING = "reasoning_content"
"""The one key of reasoning that this server reads; it drops `reasoning` silently."""
OWNED = frozenset(
    (
        *("add_generation_prompt", "beam_width", "best_of", "chat_template_kwargs", "continue_final_message"),
        *("audio_data", "echo", "image_data", "input_embeds", "input_ids", "video_data"),
        *("logprob_start_len", "logprobs", "max_completion_tokens"),
        *("max_new_tokens", "max_tokens", "messages", "model", "n", "no_stop_trim", "prompt"),
        *("return_completion_token_ids", "return_input_ids_in_sglext", "return_logprob", "return_meta_info"),
        *("return_output_ids_in_sglext", "return_prompt_token_ids", "return_text_in_logprobs"),
        *("return_token_ids", "rid", "sampling_params", "sampling_seed", "seed", "skip_special_tokens"),
        *("stop", "stop_token_ids", "stream", "stream_options", "suffix", "temperature", "text", "tools"),
    )
)
"""Keys that `Sampling.extra` may not hold: the adapter sets them, or the answer would not match the ids."""

BESIDE = frozenset(
    (
        *("bootstrap_host", "bootstrap_port", "bootstrap_room", "cache_salt", "custom_labels"),
        *("custom_logit_processor", "extra_key", "lora_path", "priority", "return_hidden_states"),
        *("return_indexer_topk", "return_routed_experts", "return_sampling_mask", "routed_dp_rank"),
        *("routed_experts_start_len", "routing_key", "session_params", "top_logprobs_num"),
    )
)
"""Extra keys at the top of the body of `/generate`; others go into `sampling_params`."""

WHOLE = {"logprobs": True, "return_meta_info": True}
"""Makes a chat return its ids, each beside its log-probability; not for streams."""
WHOLE_ECHO = {
    "return_completion_token_ids": True,  # what a fork calls the next but one
    "return_prompt_token_ids": True,
    "return_token_ids": True,
}
"""Makes a chat return its ids and its prompt's in lists, under every version's name."""
CHAT_STREAM_KEYS = {"logprobs": True, "return_output_ids_in_sglext": True, **turn_request.STREAM_KEYS}
"""Makes a streamed chat return its ids, from 0.5.20 on, in one event at its end."""
STREAMED_ECHO = {"return_input_ids_in_sglext": True}
"""Makes a streamed chat return its prompt's ids too."""

STREAM_KEYS: Mapping[Route, Mapping[str, Any]] = {
    "generate": {"stream": True},
    "chat": CHAT_STREAM_KEYS,
    "completions": turn_request.STREAM_KEYS,
}
NO_ECHO: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
ECHO: Mapping[Route, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "generate": NO_ECHO,  # requested in its body
    "chat": (WHOLE_ECHO, STREAMED_ECHO),
}
"""What makes a prompt's ids come back, whole and streamed, on the routes that need not always do so."""

OWN_ERRORS = re.compile(
    r"Messages cannot be empty|must be valid JSON|Failed to render chat messages"
    r"|add_generation_prompt is supported only|continue_final_message|Chat template tokenization requires"
    r"|--trust-request-chat-template|supports? text input|unsupported content type|is not supported for this"
    r"|cannot enforce|Cannot rewrap|tool_choice|reasoning.effort|Unsupported parameter|return_sampling_mask",
    re.IGNORECASE,
)
"""SGLang's own errors in the envelope in which it also sends what a chat template raises.

SGLang answers 400 to whatever a template raises, and names nothing. What is in doubt is an error: an outage
must never pass for "cannot be rendered".
"""


def request_name(model: ServedModel) -> str:
    """Return the name by which OpenAI routes know a model; a LoRA adapter's own would mean its parent."""
    return model.name if model.parent is None else f"{model.parent}:{model.name}"


def request_id(conversation: str | None) -> str:
    """Return a new `rid`, which begins with the conversation's name if there is one.

    SMG keeps a conversation on one worker by its `rid`, before any header, less `_t` and digits at its end
    (`strip_lineage_suffixes` in its `policies/registry.rs`).

    >>> request_id("game-7").startswith("game-7_t")
    True
    """
    name = routing_name(conversation)
    return new_request_id() if name is None else f"{name}_t{uuid.uuid4().int % 10**18}"


def chat(
    model: ServedModel, messages: Sequence[Message], rendering: Rendering, sampling: Sampling
) -> dict[str, Any]:
    """Return the body that requests a turn after messages."""
    body = {"model": request_name(model), "messages": wire_messages(messages, REASONING)}
    return {**body, **rendering_keys(rendering), **_sampling(sampling, sampling.max_tokens)}


def chat_after_ids(turn: TurnAfterIds) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the chat route, where the server's parsers run.

    The route demands a message, and does not use it.
    """
    body = {"model": request_name(turn.model), "messages": [{"role": "user", "content": "."}]}
    keys = rendering_keys(turn.rendering or Rendering())
    return {**body, "input_ids": turn.ids, **keys, **_sampling(turn.sampling, turn.max_tokens)}


def completion(turn: TurnAfterIds) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the completions route.

    One key requests both sampled ids and the prompt's, so that the prompt comes back with every turn.
    Special tokens stay in the text, since in some vocabularies the tags of tool calls are special.
    """
    body = {"model": request_name(turn.model), "prompt": turn.ids}
    fixed = {"skip_special_tokens": False, "logprobs": 0, "return_token_ids": True}
    return {**body, **_sampling(turn.sampling, turn.max_tokens), **fixed}


def generation(turn: TurnAfterIds, *, echo: bool) -> dict[str, Any]:
    """Return the body that requests a turn after ids on the engine's own route.

    `max_new_tokens` always goes along: without it this route stops at 128. A start of -1 requests the
    log-probabilities of sampled ids only; 0 would compute the whole prompt anew.
    """
    extra = turn.sampling.extra
    parameters = {
        **sampling_keys(
            turn.sampling,
            turn.max_tokens,
            OWNED,
            ("max_new_tokens", "sampling_seed"),
            logprobs_optional=True,
        ),
        **{name: value for name, value in extra.items() if name not in BESIDE},
        "skip_special_tokens": False,
    }
    lora = {"lora_path": turn.model.name} if turn.model.parent is not None else {}
    beside = {name: value for name, value in extra.items() if name in BESIDE}
    values = {"return_logprob": True, "logprob_start_len": -1} if turn.sampling.logprobs else {}
    fixed = {**values, "return_prompt_token_ids": echo}
    return {"input_ids": turn.ids, "sampling_params": parameters, **lora, **beside, **fixed}


def scoring(model: ServedModel, ids: Sequence[int], start: int) -> dict[str, Any]:
    """Return the body that requests the log-probabilities of prompt ids; nothing is sampled.

    The entry of position `logprob_start_len` has none, as nothing before it is computed.
    """
    lora = {"lora_path": model.name} if model.parent is not None else {}
    values = {"return_logprob": True, "logprob_start_len": start - 1}
    return {"input_ids": ids, "sampling_params": {"max_new_tokens": 0, "temperature": 1.0}, **lora, **values}


def _sampling(sampling: Sampling, max_tokens: int | None) -> dict[str, Any]:
    return {**sampling_keys(sampling, max_tokens, OWNED), **sampling.extra}
