"""Traces of speculative decoding in replies: ids past a stop string, and log-probabilities of exactly 0.

A server that accepts several draft ids in one step may end a turn after ids that follow its stop string, and
may report 0 for the log-probability of a draft, which means probability 1. vLLM 0.32 drops such ids and
computes the values of drafts (`vllm/v1/engine/detokenizer.py`, `vllm/v1/sample/rejection_sampler.py`);
llama.cpp marks drafts by an empty list of alternatives, and its adapter gives None for them. What others
report may also be the value of an id that was certain. So it is counted and said, never changed.

Sampling masks restrict speculation: a draft that is accepted needs a mask of its own. vLLM has one from its
rejection sampler, but starts with masks only where adaptive verification is off (`vllm/config/vllm.py`,
`_verify_sampling_replay_config`). SGLang refuses a request for masks beside other drafts than DFlash's
(`srt/speculative/spec_sampling_mask.py`). A reply with another number of masks than ids is rejected.
"""

from __future__ import annotations

from enum import StrEnum

import attrs

from .protocol import Engine, Reply, Sampling, UnsupportedError
from .turn_parts import output_parser

TAIL = 32
"""How many of a turn's last ids are looked at: more than a server accepts in one step."""
MINIMA = ("min_tokens", "min_new_tokens")


class SpeculationNotice(StrEnum):
    """Notices about traces of speculative decoding in a reply.

    Attributes:
        PAST_STOP: The turn has ids after the one that completes its stop string. They stay, as the engine
            sampled them and the next prompt has them; its text ends before the string.
        ZERO_LOGPROBS: Ids have a log-probability of exactly 0: the engine was certain, or did not compute
            them. `Counts.zero_logprobs` counts the ids. Those that are alone in their sampling mask had
            probability 1, and are not counted.
    """

    PAST_STOP = "ids-past-stop"
    ZERO_LOGPROBS = "logprobs-zero"


def zero_logprobs(reply: Reply) -> int:
    """Return how many ids of a reply, siblings included, have a log-probability of exactly 0 without reason.

    An id that is alone in its sampling mask had probability 1, as nearly half of all have with top-p.

    >>> from tito_io.engines.protocol import Usage
    >>> zero_logprobs(Reply(prompt_ids=(1,), completion_ids=(2, 3), logprobs=(0.0, -1.0), message=None,
    ...                     text="", finish_reason="stop", raw={},
    ...                     usage=Usage(prompt_tokens=1, completion_tokens=2)))
    1
    """
    return sum(_zeros(one) for one in (reply, *reply.siblings))


def _zeros(reply: Reply) -> int:
    logprobs, mask = reply.logprobs or (), reply.sampling_mask
    if mask is None:
        return logprobs.count(0.0)
    return sum(value == 0 and size != 1 for value, size in zip(logprobs, mask.counts, strict=False))


async def noted(engine: Engine, reply: Reply, sampling: Sampling) -> Reply:
    """Return a reply with notices of what it, and each of its siblings, shows of speculative decoding.

    At temperature 0 a log-probability of 0 says nothing: the likeliest id is certain.
    """
    turns = [attrs.evolve(one, siblings=()) for one in (reply, *reply.siblings)]
    for place, turn in enumerate(turns):
        notices: list[str] = []
        if isinstance(turn.stop_reason, str) and await _past_stop(engine, turn, sampling):
            notices.append(SpeculationNotice.PAST_STOP)
        if sampling.temperature != 0 and zero_logprobs(turn):
            notices.append(SpeculationNotice.ZERO_LOGPROBS)
        turns[place] = attrs.evolve(turn, notices=(*turn.notices, *notices))
    return attrs.evolve(turns[0], siblings=tuple(turns[1:])) if turns != [reply] else reply


async def _past_stop(engine: Engine, reply: Reply, sampling: Sampling) -> bool:
    """Return whether a turn's stop string is complete before its last id.

    With a least number of ids, a string before that number is no stop. Without a parser it cannot be known.
    """
    tail = reply.completion_ids[-TAIL:]
    if len(tail) < 2 or any(sampling.extra.get(name) for name in MINIMA):  # noqa: PLR2004  # one id and one past it
        return False
    try:
        parser = await output_parser(engine)
    except UnsupportedError:
        return False
    return str(reply.stop_reason) in await parser.tokenizer.decode(tail[:-1])
