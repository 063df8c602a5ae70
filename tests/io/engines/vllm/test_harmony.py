"""Models that speak harmony: stops that servers do not add, and messages parsed from ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from tests.io.engines.vllm.vllm_server import (
    chat_answer,
    completion_answer,
    generate_answer,
    mocked,
    refused,
    serving,
)
from tests.model_folders import FAMILIES
from tito_core import InputError
from tito_io.engines.protocol import (
    Delta,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    ServerError,
    UnsupportedError,
)
from tito_io.engines.replies.harmony import CALLS, CHANNEL, CONSTRAIN, END, MARKERS, MESSAGE, RETURN, START
from tito_io.engines.replies.output_parser import Harmony
from tito_io.engines.vllm import CHAT, COMPLETIONS, GENERATE, TOKENS
from tito_io.families.family import Family

pytestmark = pytest.mark.anyio

IDS = dict(zip(MARKERS, (200006, 200005, 200008, 200003, 200007, 200002, 200012), strict=True))
"""The markers' ids in gpt-oss; of other texts, each letter's number."""
PROMPT = (IDS[START], *map(ord, "user"), IDS[MESSAGE], 104, IDS[END], IDS[START], 9000)
"""It ends in a header of one id, `assistant`."""
HELLO = [{"role": "user", "content": "hello"}]
TOOLED = Rendering(tools=({"type": "function", "function": {"name": "f"}},))
PATHS = {"completions": COMPLETIONS, "chat": CHAT, "generate": GENERATE, "tokens": TOKENS}
ROUTES: Any = tuple(PATHS)

ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"
FINAL = f"{START}assistant{CHANNEL}final{MESSAGE}"
TO_F = f"{START}assistant{CHANNEL}commentary to=functions.f {CONSTRAIN}json{MESSAGE}"


def encoded(text: str) -> tuple[int, ...]:
    """Return the ids of a text, its markers as tokens."""
    for marker, index in IDS.items():
        text = text.replace(marker, chr(index))
    return tuple(map(ord, text))


def decoded(ids: Any) -> str:
    names = {index: marker for marker, index in IDS.items()} | {9000: "assistant"}
    return "".join(names.get(index) or chr(index) for index in ids)


def _tokenize(_: httpx2.Request, body: Mapping[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json={"tokens": encoded(body["prompt"])})


def _detokenize(_: httpx2.Request, body: Mapping[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json={"prompt": decoded(body["tokens"])})


KNOWN: dict[str, Any] = {"markers": _tokenize, "/tokenize": _tokenize, "/detokenize": _detokenize}


def answer_of(route: str, text: str, prompt: tuple[int, ...] = PROMPT, **parts: Any) -> dict[str, Any]:
    """Return the route's answer: a turn's text, its stop among its ids and, as servers have it, not in it."""
    ids = encoded(text)
    shown = text.removesuffix(RETURN).removesuffix(CALLS)
    if route == "completions":
        return completion_answer(ids, prompt=prompt, text=shown, **parts)
    if route == "generate":
        return generate_answer(ids, prompt=prompt, **parts)
    return chat_answer(ids, prompt=prompt, content="as the server has it", **parts)


def engine_of(route: Any, answer: Any, **options: Any) -> Any:
    """Return an engine that gets this answer, and its mock."""
    card = {"data": [{"id": "m", "max_model_len": 4000}]}
    return mocked({**KNOWN, PATHS[route]: answer, "/v1/models": card}, route=route, **options)


async def said(text: str, route: str = "completions", **options: Any) -> Reply:
    """Return the reply to a turn of this text."""
    prompt = options.pop("prompt", PROMPT)
    answer = answer_of(route, text, prompt, **options)
    reply: Reply = await engine_of(route, answer)[0].from_ids(prompt, Sampling(), TOOLED)
    return reply


@pytest.mark.parametrize(
    ("recipient", "text", "called"),
    [("f", "{}", True), ("functions.f", "x = 1", True), ("f", "x = 1", False), ("g", "{}", False)],
)
async def test_a_recipient_may_be_a_bare_name(recipient: str, text: str, called: bool) -> None:
    """A function may also have the name of a built-in tool, to which code is said."""
    reply = await said(f"{CHANNEL}commentary to={recipient} {CONSTRAIN}json{MESSAGE}{text}{CALLS}")
    message = reply.message or {}
    calls = message.get("tool_calls", [])
    assert [call["function"] for call in calls] == [{"name": "f", "arguments": text}] * called
    assert message.get("reasoning") == (None if called else text)


@pytest.mark.parametrize("route", ROUTES)
async def test_the_stops_are_always_sent(route: str) -> None:
    engine, mock = engine_of(route, answer_of(route, f"{CHANNEL}final{MESSAGE}hi{RETURN}"))
    await engine.from_ids(PROMPT, Sampling(), TOOLED)
    await engine.from_ids(PROMPT, Sampling(stop_ids=(5, 200012)), TOOLED)
    sent = [body.get("sampling_params", body)["stop_token_ids"] for body in mock.bodies(PATHS[route])]
    assert sent == [[200002, 200012], [5, 200012, 200002]]


async def test_the_stops_go_with_messages_too() -> None:
    engine, mock = engine_of("chat", answer_of("chat", f"{CHANNEL}final{MESSAGE}hi{RETURN}"))
    reply = await engine.from_messages(HELLO, TOOLED, Sampling())
    assert mock.bodies(CHAT)[0]["stop_token_ids"] == [200002, 200012]
    assert reply.message == {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize("output_format", [None, "harmony"])
async def test_conversations_are_rendered_elsewhere(output_format: Any) -> None:
    engine, mock = engine_of("completions", completion_answer(), output_format=output_format)
    with pytest.raises(UnsupportedError, match=r"tokenize_fn.*Family"):
        await engine.render(HELLO, TOOLED, add_generation_prompt=True)
    assert not any("messages" in (body or {}) for _, body in mock.asked)


async def test_a_vocabulary_without_the_markers_is_another_manners() -> None:
    engine, _ = mocked({COMPLETIONS: completion_answer()}, output_format="harmony")
    with pytest.raises(InputError, match="has no harmony markers"):
        await engine.from_ids([1], Sampling())


async def test_who_says_the_manner_is_not_contradicted() -> None:
    answer = answer_of("completions", "<think>hm</think>hi")
    engine, mock = engine_of("completions", answer, output_format="hermes")
    reply = await engine.from_ids(PROMPT, Sampling())
    assert reply.message == {"role": "assistant", "content": "hi", "reasoning": "hm"}
    assert "stop_token_ids" not in mock.bodies(COMPLETIONS)[0]


@pytest.mark.parametrize("status", [400, 500])
async def test_an_outage_tells_nothing_of_the_manner(status: int) -> None:
    engine, mock = mocked({"markers": refused("no", status), COMPLETIONS: completion_answer()})
    with pytest.raises((RequestError, ServerError)):
        await engine.from_ids([1], Sampling())
    assert not mock.bodies(COMPLETIONS)


async def test_a_server_without_a_tokenizer_can_still_chat() -> None:
    engine, _ = mocked({"markers": httpx2.Response(404, json={"detail": "Not Found"}), CHAT: chat_answer()})
    assert (await engine.from_messages(HELLO, Rendering(), Sampling())).completion_ids == (7, 8)


@pytest.mark.parametrize("route", ROUTES)
async def test_thoughts_and_answers_are_read_from_ids(route: str) -> None:
    reply = await said(f"{ANALYSIS}hm{END}{FINAL}hi{RETURN}", route)
    assert reply.message == {"role": "assistant", "content": "hi", "reasoning": "hm"}
    assert reply.finish_reason == "stop"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "call",
    [
        TO_F + '{"a":  1}',
        f'{START}assistant to=functions.f{CHANNEL}commentary json{MESSAGE}{{"a":  1}}',
        f'{START}assistant to=functions.f{CHANNEL}analysis{MESSAGE}{{"a":  1}}',
    ],
)
async def test_calls_are_read_from_ids(route: str, call: str) -> None:
    text = f"{ANALYSIS}hm{END}{START}assistant{CHANNEL}commentary{MESSAGE}Let me see.{END}{call}{CALLS}"
    reply = await said(text, route)
    assert reply.message is not None
    function = {"name": "f", "arguments": '{"a":  1}'}
    assert [one["function"] for one in reply.message["tool_calls"]] == [function]
    assert (reply.message["content"], reply.message["reasoning"]) == ("Let me see.", "hm")
    assert reply.finish_reason == "tool_calls"
    assert reply.completion_ids[-1] == IDS[CALLS]


@pytest.mark.parametrize("route", ROUTES)
async def test_trap_20_what_no_parser_takes_is_a_turn(route: str) -> None:
    """Servers that parse it fail then, and the turn is lost."""
    for text in (
        "just words",
        f"{CHANNEL}final hi{RETURN}",
        f"{MESSAGE}{MESSAGE}hi{RETURN}",
        f"{END}{END}{START}{START}",
        f"{CHANNEL}nonsense{MESSAGE}hi{CHANNEL}{END}",
        f"{TO_F}{{no json{CALLS}",
        f"{CHANNEL}commentary to=functions.f{MESSAGE}{{",
    ):
        reply = await said(text, route)
        assert reply.completion_ids == encoded(text)
        assert reply.message is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("just words", {"content": "just words"}),
        (f"{CHANNEL}nonsense{MESSAGE}hi", {"content": "hi"}),
        (f"{CHANNEL}final{MESSAGE}a{MESSAGE}b{RETURN}", {"content": f"a{MESSAGE}b"}),
        (f"{CHANNEL}commentary to=python{MESSAGE}1+1{CALLS}", {"content": "", "reasoning": "1+1"}),
        (f"{CHANNEL}commentary to=functions.f{MESSAGE}{{", {"content": "{"}),
        (f"{CHANNEL}anal", {"content": ""}),
        (RETURN, {"content": ""}),
    ],
)
async def test_what_is_odd_is_kept_where_it_can_be(text: str, message: dict[str, Any]) -> None:
    assert (await said(text)).message == {"role": "assistant", **message}


@pytest.mark.parametrize("route", ["completions", "generate"])
async def test_markers_that_are_spelled_out_are_text(route: str) -> None:
    spelled = f"Write {START}assistant so."
    ids = (*encoded(f"{CHANNEL}final{MESSAGE}"), *map(ord, spelled), IDS[RETURN])
    text = f"{CHANNEL}final{MESSAGE}{spelled}"
    answer = (
        completion_answer(ids, prompt=PROMPT, text=text)
        if route == "completions"
        else generate_answer(ids, prompt=PROMPT)
    )
    reply = await engine_of(route, answer)[0].from_ids(PROMPT, Sampling(), TOOLED)
    assert reply.message == {"role": "assistant", "content": spelled}


async def test_a_prompt_may_open_more_than_a_role() -> None:
    for opened, text, message in (
        (f"assistant{CHANNEL}analysis{MESSAGE}", f"hm{END}", {"content": "", "reasoning": "hm"}),
        (f"assistant{CHANNEL}analysis{MESSAGE}So ", f"hm{END}", {"content": "", "reasoning": "hm"}),
        (f"assistant{CHANNEL}final", f"{MESSAGE}hi{RETURN}", {"content": "hi"}),
    ):
        prompt = (IDS[START], *encoded(opened))
        assert (await said(text, prompt=prompt)).message == {"role": "assistant", **message}
    called = await said(f'{MESSAGE}{{"a": 1}}{CALLS}', prompt=encoded(f"{START}assistant to=functions.g"))
    assert called.message is not None
    assert called.message["tool_calls"][0]["function"]["name"] == "g"


async def test_a_prompt_of_no_messages_opens_none() -> None:
    for prompt in ((104, 105), encoded(f"{START}user{MESSAGE}hi{END}")):
        assert (await said(f"{CHANNEL}final{MESSAGE}hi", prompt=prompt)).message == {
            "role": "assistant",
            "content": "hi",
        }


async def test_without_tools_nothing_is_called() -> None:
    answer = answer_of("completions", f"{TO_F}{{}}{CALLS}")
    reply = await engine_of("completions", answer)[0].from_ids(PROMPT, Sampling(), Rendering())
    assert (reply.message, reply.finish_reason) == ({"role": "assistant", "content": "{}"}, "stop")


async def test_a_streamed_turn_is_read_from_its_ids() -> None:
    heard: list[Delta] = []

    async def watch(delta: Delta) -> None:
        heard.append(delta)

    text = f"{ANALYSIS}hm{END}{FINAL}hi{RETURN}"
    for route in ("completions", "chat"):
        heard.clear()
        engine = engine_of(route, serving(answer_of(route, text)))[0]
        reply = await engine.from_ids(PROMPT, Sampling(), TOOLED, watch=watch)
        assert reply.message == {"role": "assistant", "content": "hi", "reasoning": "hm"}
        assert tuple(index for delta in heard for index in delta.ids) == reply.completion_ids


# The vocabulary and the template of gpt-oss.

FOLDER = FAMILIES / "gpt-oss"


class Local:
    """A family's vocabulary, in this process."""

    def __init__(self, family: Family) -> None:
        self.family = family

    async def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self.family.encode(text)

    async def decode(self, ids: Any) -> str:
        """Return the text of ids."""
        return self.family.decode(ids)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs the folder gpt-oss: TITO_FAMILIES")
async def test_what_the_real_template_writes_is_read_back() -> None:
    family = Family.load(FOLDER)
    parser = Harmony(Local(family))
    assert await parser.supported()
    assert await parser.stop_ids() == (200002, 200012)
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    turns: list[tuple[dict[str, Any], Any]] = [
        ({"role": "assistant", "thinking": "hm", "content": "hi"}, ("hm", "hi", ())),
        ({"role": "assistant", "thinking": "hm", "content": "", "tool_calls": [call]}, ("hm", "", ("f",))),
    ]
    for message, (thought, content, names) in turns:
        prompt = family.ids(HELLO, add_generation_prompt=True)
        whole = family.ids([*HELLO, message])
        assert whole[: len(prompt)] == prompt
        ids = whole[len(prompt) :]
        text = family.decode(ids[:-1])
        parsed = await parser.parsed(prompt, ids, text, whole=True, rendering=None)
        assert (parsed.reasoning, parsed.content) == (thought, content)
        assert tuple(name for name, _ in parsed.calls) == names
        again = await parser.parsed(prompt, ids, text, whole=False, rendering=None)
        assert again == parsed, "asked about in pieces, too"
