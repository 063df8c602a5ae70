"""What real llama.cpp servers were seen to do to their clients, and what becomes of it here.

A test a trap, on recorded answers. Those that need a running server, traps 11 and 14, are in
`tests/engines/test_llamacpp.py`, which repeats the others there.
"""

from __future__ import annotations

import pytest

from tests.io.engines.llamacpp.recorded import (
    END,
    EXCHANGES,
    PROMPT,
    TEXT_END,
    Replayed,
    replayed,
)
from tests.io.engines.recorded_vocabulary import family
from tito_core import InputError
from tito_io.engines.llamacpp import LlamaCppNotice
from tito_io.engines.protocol import (
    Delta,
    EmptyReplyError,
    OverlongError,
    Rendering,
    Sampling,
    ServerError,
    UnsupportedError,
)

pytestmark = pytest.mark.anyio

EMOJI = (64, 172, 253, 99, 250, 65, 172, 253, 99, 250, TEXT_END)
HELLO = [{"role": "user", "content": "hello"}]


async def test_llamacpp_trap_01_a_watched_turn_is_not_streamed() -> None:
    """Streams leave out the ids inside characters: eleven ids, of which events held five."""
    seen: list[Delta] = []
    reply, server = await replayed("cmpl.emoji", seen=seen)
    assert server.requests[0]["stream"] is False
    assert [(delta.ids, delta.text) for delta in seen] == [(EMOJI, "a🦜b🦜")]
    assert (reply.completion_ids, seen[0].logprobs) == (EMOJI, reply.logprobs)
    events = [
        line for line in EXCHANGES["cmpl.emoji_stream"]["response"].splitlines() if '"tokens":[' in line
    ]
    assert sum('"tokens":[]' not in line for line in events) == 5


async def test_llamacpp_trap_02_an_id_inside_a_character_has_no_log_probability() -> None:
    """Entries are aligned by id: the fifth id's value is not the second's."""
    reply, _ = await replayed("cmpl.emoji")
    entries = [entry["logprob"] for entry in EXCHANGES["cmpl.emoji"]["response"]["completion_probabilities"]]
    values = [entries[0], None, None, None, entries[1], entries[2], None, None, None, *entries[3:]]
    assert reply.logprobs == tuple(values)
    assert reply.notices == (LlamaCppNotice.LOGPROBS_MISSING,)


async def test_llamacpp_trap_03_a_stop_string_cuts_log_probabilities_off() -> None:
    """Four ids, and no entry at all; the last id reaches behind the text."""
    reply, _ = await replayed("cmpl.stop_span")
    assert (reply.completion_ids, reply.logprobs) == ((3570, 640, 1165, 1158), (None,) * 4)
    assert (reply.text, reply.stop_reason, reply.finish_reason) == (" formatteddi", "r.file=Fal", "stop")
    reply, _ = await replayed("cmpl.stop_word")
    assert (len(reply.completion_ids), reply.text) == (3, " formatteddir.f")
    assert [value is None for value in reply.logprobs or ()] == [False, False, True]


async def test_llamacpp_trap_04_an_id_beside_a_draft_has_no_log_probability() -> None:
    """The server writes 0.0 for three ids, beside no alternative."""
    one = EXCHANGES["spec.logprobs"]
    reply, _ = await replayed(one)
    drafted = [place for place, value in enumerate(reply.logprobs or ()) if value is None]
    entries = one["response"]["completion_probabilities"]
    assert (
        drafted == [32, 50, 53] == [place for place, entry in enumerate(entries) if entry["logprob"] == 0.0]
    )


@pytest.mark.parametrize("key", ["return_progress", "stream", "response_fields", "return_tokens"])
async def test_llamacpp_trap_05_progress_events_are_never_asked_for(key: str) -> None:
    """An event about progress holds the id 0, which was not sampled."""
    assert '"tokens":[0],"stop":false' in EXCHANGES["cmpl.progress"]["response"]
    with pytest.raises(InputError, match=key):
        await Replayed([]).engine().from_ids(PROMPT, Sampling(max_tokens=1, extra={key: True}))


async def test_llamacpp_trap_07_a_turn_of_nothing_is_no_reply() -> None:
    """An empty prompt is answered with status 200."""
    server = Replayed([])
    with pytest.raises(InputError, match="at least one id"):
        await server.engine().from_ids([], Sampling(max_tokens=1))
    assert not server.requests
    one = EXCHANGES["err.empty_string"]
    assert one["response"]["stop_type"] == "none"
    with pytest.raises(EmptyReplyError):
        await replayed(
            {**one, "request": {"prompt": [1]}, "response": {**one["response"], "tokens_evaluated": 1}}
        )


async def test_llamacpp_trap_08_white_space_at_the_beginning_is_kept() -> None:
    """The server's chat takes it off: its message is "oper oper"."""
    chat = EXCHANGES["chat.lead_ws"]["response"]
    assert chat["choices"][0]["message"]["content"] != chat["__verbose"]["content"]
    reply, _ = await replayed("cmpl.stop_word")
    assert (reply.message or {}).get("content") == " formatteddir.f"


async def test_llamacpp_trap_09_special_tokens_have_text() -> None:
    """The server's text of three of them is empty."""
    one = EXCHANGES["cmpl.force_im_start"]
    assert one["response"]["content"] == ""
    reply, _ = await replayed(one)
    assert (reply.completion_ids, reply.text) == ((4088,) * 3, "<|im_start|>" * 3)
    reply, _ = await replayed("cmpl.force_eos")
    assert (reply.completion_ids, reply.text, reply.stop_reason) == ((END,), "", END)


async def test_llamacpp_trap_10_a_build_that_loses_turns_is_named() -> None:
    """Build 10434 answers 500 to a text that is not UTF-8."""
    one = {**EXCHANGES["old.invalid_utf8"], "request": {"prompt": [1]}}
    with pytest.raises(ServerError, match="use a newer one"):
        await replayed(one)


async def test_llamacpp_trap_12_messages_are_never_rendered_by_the_server() -> None:
    """It continues a last assistant message, and puts an empty `<think>` of its own before it."""
    assert EXCHANGES["tmpl.prefill"]["response"]["prompt"].endswith("<think>\n\n</think>\n\nHel")
    history = [*HELLO, {"role": "assistant", "content": "Hel"}]
    ids = family().ids(history, add_generation_prompt=True)
    answer = {**EXCHANGES["cmpl.force_eos"]["response"], "tokens_evaluated": len(ids)}
    del answer["generation_settings"]
    server = Replayed([answer])
    async with server.engine() as engine:
        reply = await engine.from_messages(history, Rendering(), Sampling(max_tokens=1))
    assert (list(reply.prompt_ids), server.requests[0]["prompt"]) == (ids, ids)
    assert server.paths == ["/v1/models", "/completion"]


async def test_llamacpp_trap_13_the_end_of_a_grammar_is_named() -> None:
    """A grammar ends at any end of the model: here not at the template's own."""
    reply, _ = await replayed("cmpl.emoji")
    assert (reply.stop_reason, END) == (TEXT_END, 4089)


async def test_llamacpp_trap_15_no_turn_goes_beyond_the_context() -> None:
    """A server with `--context-shift` forgets the older half instead; `truncated` says it of both kinds."""
    assert EXCHANGES["shift.run_on"]["response"]["tokens_predicted"] == 2300
    one = EXCHANGES["cmpl.len_2046"]
    server = Replayed([{**one["response"], "content": ""}])
    async with server.engine() as engine:
        reply = await engine.from_ids([64] * 2046, Sampling(max_tokens=2300))
        assert server.requests[0]["n_predict"] == 2
        assert (reply.finish_reason, reply.truncated, reply.completion_ids) == ("length", True, (1467, 3373))
        with pytest.raises(OverlongError):
            await engine.from_ids([64] * 2048, Sampling(max_tokens=1))


async def test_unknown_keys_are_refused_since_the_server_ignores_them() -> None:
    with pytest.raises(UnsupportedError, match="'input_ids'"):
        await Replayed([]).engine().from_ids(PROMPT, Sampling(max_tokens=1, extra={"input_ids": [1]}))
