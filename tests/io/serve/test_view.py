"""What a gateway shows: counts, and a session page in which texts of a conversation are nothing but text."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from itertools import chain, pairwise
from typing import Any

import attrs
import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.core.samples.calls import call
from tests.io.serve.gateway import (
    HELLO,
    Reporting,
    Scripted,
    Talk,
    embedded_gateway,
    scripted_gateway,
    talking,
    toy,
    user,
)
from tito_core.drift.diff import count_changed_ids
from tito_core.ledger import Origin, Span
from tito_core.normalization.receipts import Forgiveness
from tito_core.samples import Forest
from tito_io.embedded import TIDY
from tito_io.serve import path_tokens
from tito_io.serve import view as serve_view
from tito_io.serve.client_noise import NoiseRule
from tito_io.serve.message_lines import TAGS, Excerpt, MessageLine, MessageLines, Room
from tito_io.serve.path_tokens import PathTokens, TokenRun, changed_ids
from tito_io.serve.turn_tree import TreeTurn, TurnTree
from tito_io.serve.view import LEGEND, TurnCard

pytestmark = pytest.mark.anyio
EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


async def page(talk: Talk) -> ParsedPage:
    """Return a session's page."""
    return ParsedPage((await talk.get("/view")).text)


class ParsedPage(HTMLParser):
    """A page as a browser reads it: its tags, its text, and the elements of its tokens."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.values: list[str | None] = []
        self.classes: list[str] = []
        self.tokens: list[tuple[str, int]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.attributes |= values.keys()
        self.values += values.values()
        self.classes += (values.get("class") or "").split()
        if tag in ("i", "u") and values.get("title"):
            self.tokens.append((tag, int(values["title"] or 0)))
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


async def view(messages: list[Any], turns: int = 2, **options: Any) -> tuple[httpx2.Response, Any]:
    """Take turns; return the session's page, the gateway and the session."""
    async with talking(embedded_gateway(**options)) as talk:
        await talk.turns(turns, messages)
        return await talk.get("/view"), (talk.gateway, await talk.session())


async def test_every_id_of_a_path_is_counted_once() -> None:
    async with talking(embedded_gateway()) as talk:
        await talk.turns(3, [user()])
        for name, commit in (await talk.session()).commits.items():
            text = (await talk.get(f"/view?leaf={name}")).text
            counts = re.findall(r'<span class="who (\w+)">[^<]*</span></th><td class="right">(\d+)<', text)
            shown = {origin: int(count) for origin, count in counts if int(count)}
            assert shown == Counter(origin.name for origin in commit.step.ledger)


async def test_what_a_conversation_says_is_text_and_nothing_more() -> None:
    answer, _ = await view([user(EVIL)])
    parsed = ParsedPage(answer.text)
    assert parsed.open == []
    assert not {"script", "img", "link", "iframe", "form", "object", "base"} & set(parsed.tags)
    assert not [name for name in parsed.attributes if name.startswith("on") or name in ("src", "action")]
    assert EVIL in parsed.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"  # the session's id is in the address


async def test_names_roles_and_calls_are_escaped_too() -> None:
    gateway = scripted_gateway(Scripted())
    evil = {"type": "function", "function": {"name": EVIL, "arguments": EVIL}, "id": EVIL}
    parts = [{"type": "text", "text": EVIL}, {"type": "text", "text": "\x1b[31m\u202e"}]
    messages = [
        user(EVIL),
        {"role": "assistant", "content": None, "reasoning": "why", "tool_calls": [evil] * 6},
        *({"role": "tool", "tool_call_id": EVIL, "content": parts} for _ in range(6)),
    ]
    async with talking(gateway) as talk:
        await talk.chat(messages)
        text = (await talk.get("/view")).text
    parsed = ParsedPage(text)
    assert parsed.open == []
    assert not {"script", "img"} & set(parsed.tags)
    assert "reasoning: why" in parsed.text
    assert "2 more calls" in parsed.text
    assert "3 more messages" in parsed.text
    assert "\x1b" not in text
    assert "\u202e" not in text


async def test_reasoning_is_shown_whether_a_turn_has_content_or_calls() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}, "id": "1"}
    messages = [
        user(),
        {"role": "assistant", "content": "first", "reasoning_content": "thought of one"},
        user(),
        {"role": "assistant", "content": "second", "reasoning": "thought of two", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "done"},
    ]
    async with talking() as talk:
        await talk.chat(messages)
        text = (await page(talk)).text
    for words in ("reasoning: thought of one", "first", "reasoning: thought of two", "second", "f {}"):
        assert words in text


async def test_texts_keep_their_line_breaks_and_long_ones_end_early() -> None:
    lines = "".join(f"line {number}\n" for number in range(20))
    async with talking() as talk:
        await talk.chat([user("def f():\n\n    return 1\n"), user(lines), user("x" * 999)])
        text = (await page(talk)).text
    assert "def f():\n\n    return 1" in text
    assert "line 6\nline 7…" in text
    assert "x" * 160 + "…" in text


async def test_a_text_that_is_cut_can_be_opened_in_full() -> None:
    long = {"role": "assistant", "content": "c" * 900, "reasoning": "r" * 800}
    call = {"type": "function", "function": {"name": "f", "arguments": "a" * 700}, "id": "1"}
    messages = [
        user("short"),
        {**long, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": EVIL},
    ]
    async with talking(Scripted(each="answer {}".format)) as talk:
        await talk.chat([*messages, user("u" * 600)])
        whole = await talk.get("/view")
    assert re.findall(r">all (\d+) characters<", whole.text) == ["800", "900", "702", "600"]
    for text in ("c" * 900, "reasoning: " + "r" * 800, "f " + "a" * 700, "u" * 600):
        assert text in ParsedPage(whole.text).text
    assert "left out" not in whole.text
    assert "script" not in whole.headers["content-security-policy"]


async def test_the_newest_texts_are_whole_and_the_page_counts_those_that_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve_view, "Room", lambda _: Room(1000))
    async with talking(Scripted(each="answer {}".format)) as talk:
        messages = [user("a" * 500)]
        for letter in "bc":
            messages = [*messages, await talk.said(messages), user(letter * 450)]
        await talk.said(messages)
        text = (await talk.get("/view")).text
    assert [letter * 450 in text for letter in "abc"] == [False, True, True]
    assert "a" * 160 + "…" in text
    assert "1 whole texts, calls and messages of the older turns are left out of this page" in text


async def test_hidden_messages_and_calls_can_be_opened() -> None:
    calls = [
        {"type": "function", "function": {"name": f"f{one}", "arguments": "{}"}, "id": str(one)}
        for one in range(6)
    ]
    results = [{"role": "tool", "tool_call_id": str(one), "content": f"result {one}"} for one in range(6)]
    async with talking() as talk:
        await talk.chat([user(), {"role": "assistant", "content": None, "tool_calls": calls}, *results])
        text = (await talk.get("/view")).text
    (hidden,) = re.findall(r"<summary>3 more messages</summary>(.*?)</details>", text, re.DOTALL)
    assert re.findall(r"result \d", hidden) == ["result 1", "result 2", "result 3"]
    (more,) = re.findall(r"<summary>2 more calls</summary>(.*?)</details>", text, re.DOTALL)
    assert re.findall(r"f\d", more) == ["f4", "f5"]


async def test_what_was_ignored_is_said_once_with_its_turns() -> None:
    marked = user([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}])
    async with talking(Scripted(each="answer {}".format)) as talk:
        message = await talk.said([user("hi")])
        await talk.chat([marked, {**message, "name": None, "mood": "calm"}, user("go on")])
        text = (await page(talk)).text
        await talk.chat([marked, {**message, "mood": "calm"}, user("another way")])
        text = (await page(talk)).text
    lines = [
        " ".join(line.split()) for line in text.splitlines() if "before matching" in line or "turn" in line
    ]
    for says, where in (
        (Forgiveness.ABSENT.value, "turn 2"),
        (Forgiveness.OTHER_KEYS.value, "2 turns, first in turn 2"),
        (Forgiveness.TEXT_PART.value, "2 turns, first in turn 2"),
        (NoiseRule.CACHE_CONTROL.value, "2 turns, first in turn 2"),
    ):
        assert [line for line in lines if says in line] == [f"{says} · {where}"]
    assert text.index("Ignored when matching") < text.index("Changed before matching")


async def test_every_token_is_shown_with_its_id_below_who_wrote_it() -> None:
    answer, (_, session) = await view(list(HELLO))
    parsed = ParsedPage(answer.text)
    assert session.newest is not None
    assert [index for _, index in parsed.tokens] == session.newest.step.ids.tolist()
    runs = [name for name, after in pairwise(["", *parsed.classes]) if name == "run" for name in [after]]
    assert runs == [span.origin.name for span in session.newest.step.ledger.spans]
    for words in ("closed by tito", "tool result / user message", "generation prompt"):
        assert re.search(rf"(?<!\w){words}(?!\w)", parsed.text)
    for origin, (words, _) in LEGEND.items():
        assert (words in parsed.text) == (origin is not Origin.MEDIA)  # without images it has no line


async def test_drift_is_marked_where_a_fresh_rendering_differs() -> None:
    answer, (gateway, _) = await view(list(HELLO), turns=8)
    marked = [index for tag, index in ParsedPage(answer.text).tokens if tag == "u"]
    assert marked
    assert f"tito_drift_ids_total {float(len(marked))}".encode() in gateway.metrics.text()
    tidy, _ = await view(list(HELLO), turns=1, fault_rates=TIDY)
    assert not [index for tag, index in ParsedPage(tidy.text).tokens if tag == "u"]


def test_drift_is_found_position_by_position() -> None:
    assert list(changed_ids([1, 5, 6, 2, 9], [1, 56, 2, 9], [2])) == [0, 1, 1, 0, 0]
    assert list(changed_ids([1, 2], [1, 2], [2])) == [0, 0]
    assert list(changed_ids([1, 2, 3, 2], [1, 2], [2])) == [0, 0, 1, 1]


@example([2, 2], [6, 2, 9, 5])
@given(*[st.lists(st.sampled_from([1, 2, 5, 9]), max_size=8)] * 2)
def test_as_many_ids_are_marked_as_are_counted(used: list[int], rendered: list[int]) -> None:
    """The page and the metric agree, also on a close of two ids."""
    assert sum(changed_ids(used, rendered, [2, 9])) == count_changed_ids(used, rendered, [2, 9])


def test_a_long_session_marks_only_the_ids_that_changed() -> None:
    turns = [[10 * turn + 10, 10 * turn + 11, 10 * turn + 12, 2] for turn in range(1000)]
    changed = {place for place in range(20, 1000) if place % 3}
    again = [[turn[0], 5, *turn[2:]] if place in changed else turn for place, turn in enumerate(turns)]
    del again[7]  # so that the two have different numbers of turns
    expected = [[0, int(place in changed), 0, 0] for place in range(1000)]
    expected[7] = [1, 1, 1, 1]
    used, rendered, marks = (list(chain.from_iterable(part)) for part in (turns, again, expected))
    assert list(changed_ids(used, rendered, [2])) == marks


async def test_a_long_path_shows_its_newest_ids_and_says_how_many_it_leaves_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(path_tokens, "SHOWN", 40)
    monkeypatch.setattr(path_tokens, "DETAILED", 10)
    answer, (gateway, session) = await view(list(HELLO))
    ids = session.newest.step.ids.tolist()
    parsed = ParsedPage(answer.text)
    assert f"{len(ids) - 40:,} ids before these are left out" in parsed.text
    assert [index for _, index in parsed.tokens] == ids[-10:]
    for start, stop in ((len(ids) - 40, len(ids) - 10), (len(ids) - 10, len(ids))):
        assert gateway.decode(ids[start:stop]).strip()[-8:] in parsed.text


SPANS = (
    Span(Origin.PROMPT, 0, 5),
    Span(Origin.SAMPLED, 5, 8),
    Span(Origin.ENVIRONMENT, 8, 9),
    Span(Origin.SAMPLED, 9, 12),
)


def tokens_of(drift: Sequence[int] = ()) -> tuple[PathTokens, list[int]]:
    """Return a path of 12 ids in two turns, and a list of the ids that it decodes."""
    decoded: list[int] = []

    def decode(ids: list[int]) -> str:
        decoded.extend(ids)
        return "".join(f"<{index}>" for index in ids)

    ids = list(range(100, 112))
    return PathTokens(
        ids=ids, spans=SPANS, ends=[8, 12], drift=drift, spell=lambda index: decode([index]), decode=decode
    ), decoded


@pytest.mark.parametrize("chunk", [1, 2, 3, 1000])
@pytest.mark.parametrize("detailed", [0, 1, 4, 12, 1000])
@pytest.mark.parametrize("shown", [0, 1, 7, 12, 1000])
def test_each_token_is_decoded_once_and_stands_in_its_turn(
    monkeypatch: pytest.MonkeyPatch, shown: int, detailed: int, chunk: int
) -> None:
    for name, value in (("SHOWN", shown), ("DETAILED", detailed), ("CHUNK", chunk)):
        monkeypatch.setattr(path_tokens, name, value)
    path, decoded = tokens_of(drift=[0, 1, 1, 0])
    turns, skipped = path.runs()
    assert skipped == max(12 - shown, 0)
    assert sorted(decoded) == list(range(100 + skipped, 112))
    expected = [
        [span for span in SPANS if span.stop > skipped and turn == (span.start >= 8)]
        for turn in (False, True)
    ]
    assert [[run.origin for run in runs] for runs in turns] == [
        [s.origin for s in spans] for spans in expected
    ]
    shown_runs = [(span, run) for spans, runs in zip(expected, turns, strict=True)
                  for span, run in zip(spans, runs, strict=True)]  # fmt: skip
    for span, run in shown_runs:
        first = max(span.start, skipped)
        assert run.length == span.stop - first
        assert "".join(piece.text for piece in run.pieces) == "".join(
            f"<{index}>" for index in range(100 + first, 100 + span.stop)
        )
        assert run.drift == len({1, 2} & set(range(first, span.stop)))
        single = [piece.id for piece in run.pieces if piece.id is not None]
        assert single == list(range(100 + max(first, 12 - detailed), 100 + span.stop))


def test_a_path_of_long_tokens_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_tokens, "CHARACTERS", 20)
    monkeypatch.setattr(path_tokens, "CHUNK", 2)
    path, _ = tokens_of()
    turns, skipped = path.runs()
    assert skipped == 8
    assert [[run.length for run in runs] for runs in turns] == [[], [1, 3]]


async def test_ids_stand_for_texts_where_no_vocabulary_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_tokens, "DETAILED", 3)
    async with talking() as talk:
        await talk.chat(HELLO)
        parsed = await page(talk)
    assert "No vocabulary is known here" in parsed.text
    assert " ".join(map(str, toy(HELLO))) in parsed.text
    assert "500 501 2" in parsed.text
    assert [index for _, index in parsed.tokens] == [500, 501, 2]


async def test_a_fork_a_retry_a_cut_turn_and_a_refusal_are_shown_in_words() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with talking(Scripted(each="answer {}".format)) as talk:
        first = await talk.said(HELLO)
        for text, talk.engine.finish, more in (
            ("one way", "stop", {}),
            ("another way", "length", {}),
            ("one way", "stop", {}),
            ("with tools", "stop", {"tools": tools}),
        ):
            await talk.chat([*HELLO, first, user(text)], **more)
        text = " ".join((await page(talk)).text.split())
    for words in (
        "5 turns on 4 paths",
        "Branch from turn 1: turn 2",
        "Branch from turn 1: turn 3",
        "Branch from turn 1: turn 4",
        "retry of turn 2: the same prompt",
        "cut short: no stop token was sampled",
        "continues turn 1, but its ids were rendered again",
        "went by messages: the matched step was rendered with other tools or template arguments",
        "sent by ids · prompt",
        "user another way",
    ):
        assert words in text
    assert re.findall(r"continues turn (\d+) ", text) == ["1"]  # below the branches, where that is not seen


@pytest.mark.parametrize("shape", ["comb", "heavy", "mixed"])
def test_the_shown_path_is_one_chain_and_branches_nest_little(shape: str) -> None:
    count = 600
    shapes: dict[str, Callable[[int], int]] = {
        "comb": lambda turn: max(turn - 1 - turn % 2, 0),
        "heavy": lambda turn: max(turn - 2, 0),
        "mixed": lambda turn: (turn * 2_654_435_761 >> 7) % turn,
    }
    above = {"0": None} | {str(turn): str(shapes[shape](turn)) for turn in range(1, count)}
    below: dict[str | None, list[str]] = {name: [] for name in (None, *above)}
    for name, other in above.items():
        below[other].append(name)
    tree = TurnTree(numbers={name: int(name) + 1 for name in above}, above=above, below=below)
    (chain,) = tree.chains(str(count - 1))
    path: list[str] = [str(count - 1)]
    while (other := above[path[-1]]) is not None:
        path.append(other)
    assert [turn.name for turn in chain][: len(path)] == path[::-1]
    assert sorted(names(chain), key=int) == list(above)
    assert depth(chain) <= 1 + math.log2(count)


def names(chain: tuple[TreeTurn, ...]) -> list[str]:
    return [
        name for turn in chain for name in (turn.name, *(n for side in turn.branches for n in names(side)))
    ]


def depth(chain: tuple[TreeTurn, ...]) -> int:
    return max((1 + depth(side) for turn in chain for side in turn.branches), default=0)


async def test_a_session_of_no_turns_and_an_engine_that_renders_nothing_have_a_page() -> None:
    engine = Scripted(renders=False)
    async with talking() as talk:
        empty = await talk.get("/view")
        assert empty.status_code == 200
        assert "This session has no turns yet." in empty.text
        await talk.chat(HELLO)
        talk.gateway.turns.sampler.engine = engine
        answer = await talk.get("/view")
    assert "drift is not known" in answer.text


async def shown_turns(talk: Talk) -> tuple[list[int], str]:
    """Return the numbers of the turns whose tokens the page shows, and its text."""
    text = (await talk.get("/view")).text
    turns = re.split(r'<div class="turn[^"]*" id="t(\d+)">', text)[1:]
    return [
        int(number) for number, body in zip(turns[::2], turns[1::2], strict=True) if 'class="ids"' in body
    ], text


async def test_the_page_opens_on_the_longest_path_and_links_to_the_newest_turn() -> None:
    async with talking(Scripted(each="answer {}".format)) as talk:
        first = await talk.said(HELLO)
        await talk.chat([*HELLO, first, user("go on")])
        assert (await shown_turns(talk))[0] == [1, 2]
        await talk.chat([user("Give this conversation a title.")])  # as agents ask beside their work
        shown, text = await shown_turns(talk)
        assert shown == [1, 2]
        assert "Who wrote the" in text
        assert "up to turn 2" in text
        assert "Show the newest turn, 3." in text
        await talk.chat([*HELLO, first, user("go on, and read all of the files")])
        assert (await shown_turns(talk))[0] == [1, 4]  # as many turns, and more ids
        await talk.chat([*HELLO, first, user("go on, and read all of the files")])
        shown, text = await shown_turns(talk)
        assert shown == [1, 5]  # as many ids, and newer
        assert "Show the newest turn" not in text


@pytest.mark.parametrize("leaf", ["zzz", "", "%3Cscript%3E"])
async def test_a_turn_that_is_not_there_has_no_page(leaf: str) -> None:
    async with talking() as talk:
        answer = await talk.chat(HELLO)
        assert (await talk.get(f"/view?leaf={answer['id']}")).status_code == 200
        missing = await talk.get(f"/view?leaf={leaf}")
    error = {"error": "leaf: this session has no turn of that name", "code": "not_found"}
    assert (missing.status_code, missing.json()) == (404, error)


async def test_metrics_count_turns_and_hold_no_words_of_a_client() -> None:
    async with talking(embedded_gateway()) as talk:
        message = await talk.said(HELLO, model="apricot")
        await talk.chat([*HELLO, message, user("apricot")])
        await talk.post({"apricot": 1})
        await talk.http.get("/sessions/apricot")
        text = talk.metrics
    lines = set(text.splitlines())
    assert 'tito_turns_total{dialect="chat",route="MITO"} 1.0' in lines
    assert 'tito_turns_total{dialect="chat",route="TITO"} 1.0' in lines
    assert 'tito_declined_total{kind="session_not_found",status="404"} 1.0' in lines
    assert "tito_committed_total 2.0" in lines
    assert any(line.startswith("tito_cached_ids_total ") and not line.endswith(" 0.0") for line in lines)
    assert "apricot" not in text
    assert "_created" not in text
    assert 'tito_turn_seconds_bucket{le="+Inf"} 2.0' in lines


async def test_a_page_of_many_turns_begins_with_links_to_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_view, "JUMP", 3)
    answer, _ = await view([user()], turns=7)
    nav = answer.text.partition("Jump to turn")[2].partition("</nav>")[0]
    links = [value for value in ParsedPage(f"<nav><span>{nav}</nav>").values if value]
    assert links == ["#t3", "#t6", "#t7"]  # the last one is the shown turn


async def test_a_turn_says_how_it_was_sent_and_how_it_ended() -> None:
    async with talking(Reporting()) as talk:
        await talk.chat([user("a"), await talk.said([user("a")]), user("b")])
        text = (await page(talk)).text
    facts = [" ".join(line.split()) for line in text.splitlines() if " · " in line and "prompt " in line]
    first = "sent by messages · prompt 6 ids · sampled 3 in N s · ended by stop"
    second = "sent by ids · prompt 15 ids, 4 from the engine's cache · sampled 3 in N s · ended by tool_calls"
    facts = [re.sub(r"in \d+\.\d s", "in N s", line) for line in facts]
    for line, beginning, request in zip(facts, (first, second), (2, 4), strict=True):
        assert re.fullmatch(rf"{re.escape(beginning)} ·.* worker worker 1 · request request {request}", line)


async def test_a_retry_of_the_first_turn_continues_none_and_no_time_is_negative() -> None:
    """The clock went back."""
    async with talking(clock=lambda: time.time() + 60) as talk:
        for _ in range(2):
            await talk.chat(HELLO)
        assert list(TurnTree.of((await talk.session()).forest).above.values()) == [None, None]
        assert "sampled 3 in 0.0 s" in (await talk.get("/view")).text


def test_what_is_shown_of_a_message_is_bounded() -> None:
    line = MessageLine.of
    calls = [{"function": {"name": "f" * 300, "arguments": "{}"}}, "odd", {"function": 7}, {}, {}, {}]
    shown = line({"role": "r" * 40, "content": [{"text": "a"}, "b", {"type": "x"}], "tool_calls": calls})
    assert (shown.role, shown.kind, shown.text.beginning) == ("r" * 32, "other", "a b [x]")
    assert [one.beginning for one in shown.calls] == ["f" * 160 + "…", "None", "None", "None"]
    assert (shown.more, len(shown.folded)) == (2, 2)
    roles = ("system", "developer", "user", "tool", "assistant")
    assert [line({"role": role, "content": None}).kind for role in roles] == list(roles)
    assert line({"role": "user", "tool_calls": 7}).calls == ()
    assert line({"role": "user", "content": "a"}).more == 0


@pytest.mark.parametrize(
    ("call", "beginning"),
    [
        ({"name": " " * 999 + "f"}, "f"),
        ({"name": "g" * 159, "arguments": "{}"}, "g" * 159 + "…"),
        ({"name": "f", "arguments": "y" * 158}, "f " + "y" * 158),
        ({"name": "f", "arguments": "y" * 159}, "f " + "y" * 158 + "…"),
        ({"name": "f", "arguments": "a" + " " * 999 + "b"}, "f a…"),
    ],
)
def test_the_beginning_of_a_call_says_whether_it_goes_on(call: dict[str, str], beginning: str) -> None:
    found = Excerpt.of_call({"function": call})
    assert (found.beginning, found.cut) == (beginning, beginning.endswith("…"))
    assert found.whole == f"{call['name']} {call.get('arguments', '')}".strip()


@pytest.mark.parametrize("text", ["z" * 160, "\n".join("12345678")])
def test_a_text_of_the_longest_size_is_not_cut(text: str) -> None:
    assert (Excerpt.of(text).beginning, Excerpt.of(text).cut) == (text, False)
    assert Excerpt.of(text + "\n9").cut


@given(st.integers(0, 12), st.integers(0, 6), st.integers(0, 2000))
def test_each_message_stands_in_its_place_or_is_counted(count: int, shown: int, characters: int) -> None:
    messages = [user(f"{place} " + "x" * (40 * place)) for place in range(count)]
    room = Room(characters)
    lines = MessageLines.of(messages, 2 * shown, room)
    order = [int(line.text.whole.split()[0]) for line in (*lines.first, *lines.folded, *lines.last)]
    assert order == sorted(set(order))
    assert lines.hidden == max(count - 2 * shown, 0)
    assert count - len(order) == lines.hidden - len(lines.folded) <= room.left_out
    whole = [line.text for line in (*lines.first, *lines.folded, *lines.last) if line.text.opens]
    assert sum(len(one.whole) for one in whole) + TAGS * len(lines.folded) <= characters


def test_a_leaf_has_as_many_turns_as_its_path() -> None:
    calls = [call("a", [1], [2]), call("b", [1, 2, 3], [4]), call("c", [1, 2, 3, 4, 5], [6])]
    calls += [call("d", [1, 2, 9], [8]), call("e", [7], [7])]
    tree = TurnTree.of(Forest.of([attrs.evolve(one, order=place) for place, one in enumerate(calls)]))
    assert tree.leaves() == {"c": 3, "d": 2, "e": 1}
    assert tree.numbers == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}


async def test_a_page_says_when_its_session_was_opened_wherever_the_gateway_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        gateway = scripted_gateway(Scripted(), clock=lambda: 86_400.0 * 365)
        async with talking(gateway) as talk:
            text = (await talk.get("/view")).text
    time.tzset()
    assert "1971-01-01 00:00" in text


def test_a_turn_counts_the_ids_of_each_origin_and_those_that_drift() -> None:
    runs = (
        TokenRun(Origin.SAMPLED, 2, 0, ()),
        TokenRun(Origin.PROMPT, 3, 1, ()),
        TokenRun(Origin.SAMPLED, 4, 2, ()),
    )
    known: dict[str, Any] = {
        "name": "",
        "facts": "",
        "origin": (),
        "lines": MessageLines.of([], 0, Room(0)),
        "notes": (),
    }
    card = TurnCard(number=1, continues=None, sampled=6, runs=runs, **known)
    assert (card.counts, card.drift) == ([(Origin.PROMPT, 3), (Origin.SAMPLED, 6)], 3)
    unknown = attrs.evolve(card, runs=None)
    assert (unknown.counts, unknown.drift) == ([], 0)


def test_the_turns_up_to_the_shown_one_are_one_chain_however_small_it_is() -> None:
    ids = {"a": [1], "b": [1, 2], "c": [1, 2, 3], "d": [1, 2, 3, 4], "e": [1, 2, 3, 4, 5], "x": [1, 9]}
    calls = [call(name, prompt, [prompt[-1] + 1]) for name, prompt in ids.items()]
    calls = [attrs.evolve(one, order=place) for place, one in enumerate(calls)]
    calls[-1] = attrs.evolve(call("x", [1, 2, 7], [8]), order=9)
    tree = TurnTree.of(Forest.of(calls))
    (long,) = tree.chains(None)
    (shown,) = tree.chains("x")
    assert [turn.name for turn in long] == ["a", "b", "c", "d", "e"]
    assert [turn.name for turn in shown] == ["a", "x"]
    (side,) = shown[0].branches
    assert [turn.name for turn in side] == ["b", "c", "d", "e"]
