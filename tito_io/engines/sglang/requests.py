"""What SGLang is asked: the bodies of requests, and the only place that knows SGLang's names for them.

The OpenAI routes ignore keys that they do not know, so a misspelt key is no error there. Hence the checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tito_core import Ids, Message
from tito_io.engines.openai_fields import rendered, said, sampled
from tito_io.engines.protocol import Rendering, Sampling

from .served import SglangModels

Route = Literal["generate", "chat", "completions"]
ROUTES: tuple[Route, ...] = ("generate", "chat", "completions")
"""How ids go in."""

GENERATE, CHAT, COMPLETIONS = "/generate", "/v1/chat/completions", "/v1/completions"
PATHS: Mapping[Route, str] = {"generate": GENERATE, "chat": CHAT, "completions": COMPLETIONS}

REASONING = "reasoning_content"
"""The one name of a thought that this server reads; the other is dropped without a word."""
OWNED = frozenset(
    (
        "add_generation_prompt",
        "beam_width",
        "best_of",
        "chat_template_kwargs",
        "continue_final_message",
        "echo",
        "input_embeds",
        "input_ids",
        "logprob_start_len",
        "logprobs",
        "max_completion_tokens",
        "max_new_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "no_stop_trim",
        "prompt",
        "return_completion_token_ids",
        "return_input_ids_in_sglext",
        "return_logprob",
        "return_meta_info",
        "return_output_ids_in_sglext",
        "return_prompt_token_ids",
        "return_text_in_logprobs",
        "return_token_ids",
        "rid",
        "sampling_params",
        "sampling_seed",
        "seed",
        "skip_special_tokens",
        "stop",
        "stop_token_ids",
        "stream",
        "stream_options",
        "suffix",
        "temperature",
        "text",
        "tools",
    )
)
"""Keys that `Sampling.extra` may not hold: they are said elsewhere, or would part the ids from the answer."""

BESIDE = frozenset(
    (
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "cache_salt",
        "custom_labels",
        "custom_logit_processor",
        "extra_key",
        "lora_path",
        "priority",
        "return_hidden_states",
        "return_indexer_topk",
        "return_routed_experts",
        "return_sampling_mask",
        "routed_dp_rank",
        "routed_experts_start_len",
        "routing_key",
        "session_params",
        "top_logprobs_num",
    )
)
"""Keys that `/generate` has beside its sampling parameters and not among them."""

WHOLE = {"logprobs": True, "return_meta_info": True}
"""What makes a chat say its ids, each beside its log-probability; this may not be streamed."""
WHOLE_ECHO = {
    "return_completion_token_ids": True,  # what a fork calls the next but one
    "return_prompt_token_ids": True,
    "return_token_ids": True,
}
"""What makes it say them in a list, under every version's name, and its prompt's ids with them."""
STREAMED = {
    "logprobs": True,
    "return_output_ids_in_sglext": True,
    "stream": True,
    "stream_options": {"include_usage": True},
}
"""What makes a streamed chat say its ids, from 0.5.20 on, in one event at its end."""
STREAMED_ECHO = {"return_input_ids_in_sglext": True}
"""What makes it say its prompt's ids, too."""


def chat(
    served: SglangModels, messages: Sequence[Message], rendering: Rendering, sampling: Sampling
) -> dict[str, Any]:
    """Return the body that asks for a turn after messages."""
    body = {"model": served.asked_for, "messages": said(messages, REASONING), **rendered(rendering)}
    return {**body, **_openai(sampling, sampling.max_tokens)}


def chat_after_ids(
    served: SglangModels, ids: Ids, rendering: Rendering | None, sampling: Sampling, max_tokens: int
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the chat route, where the server's parsers run.

    The message is demanded and not read.
    """
    body = {"model": served.asked_for, "messages": [{"role": "user", "content": "."}], "input_ids": ids}
    return {**body, **rendered(rendering or Rendering()), **_openai(sampling, max_tokens)}


def completion(served: SglangModels, ids: Ids, sampling: Sampling, max_tokens: int) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the completions route.

    One key asks for sampled ids and for the prompt's, which come back with every turn therefore.
    Special tokens stay in the text, since in some vocabularies the tags of tool calls are special.
    """
    body = {"model": served.asked_for, "prompt": ids, **_openai(sampling, max_tokens)}
    return {**body, "skip_special_tokens": False, "logprobs": 0, "return_token_ids": True}


def generation(
    served: SglangModels, ids: Ids, sampling: Sampling, max_tokens: int, *, echo: bool
) -> dict[str, Any]:
    """Return the body that asks for a turn after ids on the engine's own route.

    `max_new_tokens` always goes along: without it this route stops at 128. A start of -1 asks for the
    log-probabilities of what is sampled and nothing before; 0 would compute the whole prompt anew.
    """
    beside = {name: value for name, value in sampling.extra.items() if name in BESIDE}
    among = {name: value for name, value in sampling.extra.items() if name not in BESIDE}
    parameters = {
        **sampled(sampling, max_tokens, OWNED, ("max_new_tokens", "sampling_seed")),
        **among,
        "skip_special_tokens": False,
    }
    lora = {"lora_path": served.name} if served.parent is not None else {}
    asked = {"return_logprob": True, "logprob_start_len": -1, "return_prompt_token_ids": echo}
    return {"input_ids": ids, "sampling_params": parameters, **lora, **beside, **asked}


def render(
    served: SglangModels, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
) -> dict[str, Any]:
    """Return the body that asks for the ids of messages."""
    body = {"model": served.asked_for, "messages": said(messages, REASONING), **rendered(rendering)}
    return {**body, "add_generation_prompt": add_generation_prompt}


def _openai(sampling: Sampling, max_tokens: int | None) -> dict[str, Any]:
    """Return how to sample, as the OpenAI routes say it."""
    return {**sampled(sampling, max_tokens, OWNED), **sampling.extra}
