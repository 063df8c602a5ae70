"""A rollout accounts for every sampled id, and its exit status says whether any was lost."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest
from click.testing import CliRunner, Result

from tests.interrupts import interrupt
from tests.io.audit.audited import KEEPING, replace
from tests.io.families.fast.package import installed
from tests.io.samples.sample_files import read
from tests.io.serve.gateway import served
from tito_core import InputError
from tito_io.cli import options as shared
from tito_io.cli import waiting
from tito_io.cli.errors import BAD_INPUT, ENGINE_FAILED
from tito_io.cli.group import tito
from tito_io.client.conversation import Conversation
from tito_io.embedded import write_family
from tito_io.embedded.app import app as embedded_app
from tito_io.engines.protocol import (
    Engine,
    EngineAnswer,
    Reply,
    SampleRequest,
    Sampling,
    ServerError,
)
from tito_io.engines.registry import EngineOptions, embedded
from tito_io.engines.wrapper import EngineWrapper
from tito_io.families.fast import fast_tokenizer
from tito_io.rollout import command
from tito_io.rollout.command import FULL, LOST
from tito_io.rollout.run import Rollout, RolloutTurn
from tito_io.rollout.script import ScriptLine, default_script, load, parse


def run(*options: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(tito, ["rollout", *options], env=env)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait a minute at most."""
    for _ in range(600):
        if condition():
            break
        time.sleep(0.1)


def lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_every_sampled_id_survives_fifty_turns_of_the_embedded_engine() -> None:
    result = run("--turns", "50", "--json")
    *turns, last = lines(result)
    summary = last["summary"]
    assert result.exit_code == 0
    assert len(turns) == summary["turns"] == 50
    assert summary["routes"] == {"MITO": 1, "TITO": 49}
    assert summary["sampled_ids"] == sum(turn["sampled_ids"] for turn in turns)
    assert summary["drift_ids"] == sum(turn["drift_ids"] for turn in turns) > 0
    assert (summary["lost_ids"], summary["retokenized_ids"], summary["refusals"]) == (0, 0, {})
    for before, after in pairwise(turns):
        assert after["reused_ids"] == before["prompt_ids"] + before["sampled_ids"]
        assert after["prompt_ids"] == after["reused_ids"] + after["new_ids"]
        assert after["new_ids"] < 150  # only what is new is tokenized
        assert after["cached_ids"] >= after["reused_ids"] - 16  # the engine's cache has blocks of sixteen


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_the_same_seed_gives_the_same_rollout(seed: str) -> None:
    options = ("--seed", seed, "--turns", "15", "--json")
    first, second = run(*options), run(*options)
    assert first.exit_code == second.exit_code == 0
    assert first.stdout == second.stdout


def test_a_strict_policy_falls_back_to_messages_and_says_why_and_what_it_lost() -> None:
    result = run("--turns", "50", "--odd-stop", "refuse", "--seed", "2", "--json")
    *turns, last = lines(result)
    summary = last["summary"]
    assert result.exit_code == LOST
    assert summary["refusals"]["ODD_STOP"] == sum(turn["refusal"] == "ODD_STOP" for turn in turns) > 0
    assert summary["routes"]["MITO"] == 1 + sum(summary["refusals"].values())
    assert summary["lost_ids"] == sum(turn["lost_ids"] for turn in turns) > 0
    assert summary["retokenized_ids"] == sum(turn["retokenized_ids"] for turn in turns) > 0


def test_cut_turns_may_be_refused() -> None:
    result = run("--turns", "20", "--max-tokens", "16", "--truncated", "refuse", "--json")
    assert lines(result)[-1]["summary"]["refusals"]["TRUNCATED"] > 0


def test_the_table_shows_routes_and_a_verdict() -> None:
    result = run("--turns", "6")
    assert result.exit_code == 0
    assert "TITO" in result.stdout
    assert "MITO" in result.stdout
    assert "sampled ids kept" in result.stdout
    assert "6 turns: 5 by ids, 1 by messages" in result.stdout


def test_a_model_folder_renders_as_the_engine_does(tmp_path: Path) -> None:
    folder = write_family(tmp_path / "family")
    options = ("--turns", "12", "--json")
    assert run(*options, "--family", str(folder)).stdout == run(*options).stdout


def test_without_comparison_there_is_no_drift_to_show() -> None:
    *turns, last = lines(run("--turns", "4", "--no-compare", "--json"))
    assert {turn["drift_ids"] for turn in turns} == {None}
    assert last["summary"]["drift_ids"] is None
    assert "drift ids" not in run("--turns", "4", "--no-compare").stdout


def test_own_script(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"user": "One?"}\n\n{"user": "Two?"}\n')
    result = run("--script", str(script), "--json")
    assert result.exit_code == 0
    assert lines(result)[-1]["summary"]["turns"] == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no user texts"),
        ("{", "line 1, column 2: not JSON"),
        ('{"user": "a"}\n[]', "line 2: give an object such as"),
        ('{"user": 5}', "line 1: user must be a string"),
        ('{"use": "a"}', "with keys among system, tool, tools, user, not use"),
        ('{"tools": "x", "user": "a"}', "line 1: tools must be a list"),
        ('{"user": ""}', "line 1: give a `user` text that is not empty"),
        ('{"system": "s"}', "has no user texts"),
        ('{"system": "s", "user": null}', "line 1: give a `user` text that is not empty"),
        (
            '{"user": "a"}\n\n{"tool": "x"}',
            "line 3: give a `user` text that is not empty; a `tool` text is used",
        ),
        ('{"user": "a"}\n{"system": "s", "user": "b"}', "line 2: system belongs to the first line"),
        ('{"user": "a"}\n{"tools": []}', "line 2: tools belongs to the first line"),
    ],
)
def test_a_wrong_script_is_named_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text(text)
    result = run("--script", str(script))
    assert result.exit_code == BAD_INPUT
    assert str(script) in result.stderr
    assert words in result.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--script", "/nowhere.jsonl"), "cannot read the script /nowhere.jsonl"),
        (("--family", "/nowhere"), "/nowhere"),
        (("--engine", "vllm"), "--engine vllm needs --base-url"),
        (("--engine", "vlm"), "Invalid value for '--engine'"),
        (
            ("--engine", "vllm", "--base-url", "http://127.0.0.1:99999"),
            "a port that is not one of 1 to 65535",
        ),
        (("--engine", "vllm", "--base-url", "127.0.0.1:9"), "not an http address"),
        (("--base-url", "http://127.0.0.1:9"), "name another with --engine"),
        (("--seed", str(2**70)), "Invalid value for '--seed'"),
        (("--temperature", "inf"), "Invalid value for '--temperature'"),
        (("--temperature", "nan"), "nan is not a finite number"),
        (("--max-tokens", str(2**31)), "Invalid value for '--max-tokens'"),
        (("--vocab-size", "7"), "--vocab-size is for --engine sglang, and this is embedded"),
        (("--calls", "/dev/full"), "--calls /dev/full: cannot be written: No space left on device"),
        (("--turns", "0"), "Invalid value for '--turns'"),
        (("--max-tokens", "many"), "'many' is not a valid integer.\n"),
    ],
)
def test_bad_input_has_its_own_exit_status(options: tuple[str, ...], words: str) -> None:
    result = run(*options)
    assert result.exit_code == BAD_INPUT
    assert words in result.stderr


def test_calls_have_the_sampling_masks_of_their_turns(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    result = run("--sampling-masks", "--top-p", "0.7", "--top-k", "3", "--turns", "3", "--calls", str(file))
    assert result.exit_code == 0, result.output
    (stored,), problems = read(file)
    assert not problems
    masks = [one.step.sampling_mask for one in stored.forest.calls]
    assert len(masks) == 3
    assert all(mask is not None and 1 <= min(mask.counts) <= max(mask.counts) <= 3 for mask in masks)
    refused = run("--sampling-masks", "--temperature", "0")
    assert refused.exit_code == ENGINE_FAILED
    assert "requires temperature > 0" in refused.stderr


def test_an_engine_that_is_not_there_has_its_own_exit_status_and_a_summary() -> None:
    where = ("--engine", "vllm", "--base-url", "http://127.0.0.1:9", "--model", "m")
    result, done = run(*where), run(*where, "--json")
    assert result.exit_code == done.exit_code == ENGINE_FAILED
    assert "127.0.0.1:9" in result.stderr
    ((summary,),) = (one.values() for one in lines(done))
    assert summary["turns"] == 0
    assert "127.0.0.1:9" in summary["error"]


@pytest.mark.parametrize("key", ["a b", "a\n", "schl\u00fcssel", "\x1b[31m"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_repeated(key: str) -> None:
    where = ("--engine", "vllm", "--base-url", "http://127.0.0.1:9")
    for result in (run(*where, "--api-key", key), run(*where, env={"TITO_API_KEY": key})):
        assert result.exit_code == BAD_INPUT
        assert "--api-key (or TITO_API_KEY) has a space" in result.stderr
        assert key not in result.stderr


def wordy(tmp_path: Path, *texts: str) -> Path:
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(json.dumps({"user": text}) for text in texts))
    return script


@pytest.fixture
def short_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the context of the embedded engine: a million ids take long to fill."""
    monkeypatch.setitem(embedded_app.__kwdefaults__ or {}, "max_model_len", 32_768)


@pytest.mark.usefixtures("short_context")
def test_a_full_context_is_reported_with_the_turns_that_fit(tmp_path: Path) -> None:
    options = ("--script", str(wordy(tmp_path, "word " * 2_000, "no " * 9_000)), "--turns", "40")
    result = run(*options, "--json")
    *turns, last = lines(result)
    assert result.exit_code == FULL
    assert 1 < len(turns) < 40
    error = last["summary"]["error"]
    assert error.startswith(f"the context is full after {len(turns)} turns; ask for fewer with --turns")
    assert result.stderr == f"tito: {error}\n"
    assert last["summary"]["sampled_ids"] == sum(turn["sampled_ids"] for turn in turns) > 0
    shown = run(*options)
    assert shown.exit_code == FULL
    assert f"stopped early: {error}" in shown.stdout


@pytest.mark.usefixtures("short_context")
def test_a_first_prompt_that_does_not_fit_is_an_error(tmp_path: Path) -> None:
    options = ("--script", str(wordy(tmp_path, "word " * 50_000)))
    for result in (run(*options), run(*options, "--json")):
        assert result.exit_code == FULL
        assert result.stderr.startswith("tito: the first prompt and its answer of --max-tokens do not fit")
        assert "POST the embedded engine's /v1/chat/completions answered 400" in result.stderr
        assert "http://" not in result.stderr


class Meeting(EngineWrapper):
    """An engine to which something happens at its third turn by ids."""

    taken: int = 0

    async def third(self) -> None:
        raise NotImplementedError

    async def sample(self, request: SampleRequest) -> Reply:
        self.taken += request.messages is None
        if self.taken == 3 and request.messages is None:
            await self.third()
        return await super().sample(request)


class Failing(Meeting):
    """It fails."""

    async def third(self) -> None:
        answer = EngineAnswer(500, {"error": {"message": "CUDA is gone"}})
        raise ServerError("the engine failed", answer, hint="its own words are in `answer.body`")


def test_trouble_on_the_way_keeps_what_was_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: str, address: EngineOptions) -> Engine:
        return Failing(embedded(seed=address.seed))

    monkeypatch.setattr(command, "make_engine", failing)
    result = run("--turns", "9", "--json")
    *turns, last = lines(result)
    assert (result.exit_code, len(turns)) == (ENGINE_FAILED, 3)
    assert last["summary"]["error"] == "the engine failed; it says: CUDA is gone"
    assert result.stderr == "tito: the engine failed; it says: CUDA is gone\n"
    assert last["summary"]["sampled_ids"] == sum(turn["sampled_ids"] for turn in turns) > 0
    shown = run("--turns", "9")
    assert (shown.exit_code, shown.stderr) == (ENGINE_FAILED, "")
    assert "stopped early: the engine failed; it says: CUDA is gone" in shown.stdout


class Interrupted(Meeting):
    """It is interrupted."""

    async def third(self) -> None:
        signal.raise_signal(signal.SIGINT)
        await anyio.sleep(60)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(command, "make_engine", lambda _, address: Interrupted(embedded(seed=address.seed)))
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupted")
def test_an_interrupt_prints_the_turns_until_then(tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    shown = run("--turns", "9", "--calls", str(calls))
    assert "drift" in shown.stdout
    assert "3 turns: 2 by ids, 1 by messages" in shown.stdout
    assert shown.stdout.endswith("stopped early: interrupted\n")
    assert len(calls.read_bytes().splitlines()) == 3
    *turns, last = lines(run("--turns", "9", "--json"))
    assert (len(turns), last["summary"]["turns"], last["summary"]["error"]) == (3, 3, "interrupted")
    assert last["summary"]["sampled_ids"] == sum(turn["sampled_ids"] for turn in turns) > 0


def test_an_interrupted_rollout_that_is_written_to_a_file_ends_with_130(tmp_path: Path) -> None:
    calls = tmp_path / "calls.jsonl"
    heeding = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = [sys.executable, "-c", f"{heeding}; from tito_io.cli.main import main; main()", "rollout"]
    options = ["--turns", "100000", "--max-tokens", "1", "--no-compare", "--calls", str(calls)]
    with subprocess.Popen([*program, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as going:
        wait_for(lambda: calls.exists() and calls.stat().st_size > 1_000)
        told, said = interrupt(going)
    assert (going.returncode, said) == (130, b"tito: interrupted\n")
    assert b"sampled ids kept" in told
    assert told.endswith(b"stopped early: interrupted\n")


SWITCHED = KEEPING.replace(
    "<|turn|>assistant\n{% endif %}",
    "<|turn|>assistant\n{% if messages[0].content|length == 7 %}!{% endif %}{% endif %}",
)
"""A template in which the length of the first message has a say in how every later prompt ends."""


@pytest.mark.parametrize(("first", "differing"), [("loudest", 3), ("calm", 0)])
def test_turns_that_are_checked_are_counted(tmp_path: Path, first: str, differing: int) -> None:
    folder = replace(write_family(tmp_path / "family"), chat_template__jinja=SWITCHED)
    script = ("--script", str(wordy(tmp_path, first, "b", "c", "d")))
    options = (*script, "--turns", "7", "--family", str(folder), "--check-every", "2")
    summary = lines(run(*options, "--json"))[-1]["summary"]
    assert (summary["checked_turns"], summary["differing_turns"]) == (3, differing)
    assert summary["refusals"].get("UNPROVEN_TAIL", 0) >= differing
    told = f"3 turns checked: {differing} differed from a render of the whole conversation"
    assert told in run(*options).stdout


def test_turns_are_counted_as_checked_only_where_the_option_is_on() -> None:
    summary = lines(run("--turns", "3", "--json"))[-1]["summary"]
    assert (summary["checked_turns"], summary["differing_turns"]) == (None, None)
    assert "checked" not in run("--turns", "3").stdout
    assert "0 turns checked" in run("--turns", "3", "--check-every", "9").stdout


def test_help_lists_the_exit_statuses() -> None:
    told = run("--help").stdout
    assert [line.split()[0] for line in told.partition("Exit status:\n")[2].splitlines()] == [
        *("0", "1", "2", "3", "4", "130")
    ]


def test_the_default_script_answers_every_call() -> None:
    script = default_script()
    calls = [{"id": str(i), "function": {"name": "stock", "arguments": "{}"}} for i in range(3)]
    said = script.reply_to(1, {"role": "assistant", "tool_calls": calls})
    assert [message.get("tool_call_id") for message in said[:3]] == ["0", "1", "2"]
    assert script.reply_to(1, {"role": "assistant", "content": "x"})[0]["role"] == "user"


def test_a_line_that_is_not_utf8_is_named_with_the_byte() -> None:
    with pytest.raises(InputError, match=r"line 2: is not valid UTF-8 at byte 11$"):
        parse([b'{"user": "a"}', b'{"user": "\xe9"}'], "a script")


def test_a_line_without_a_result_still_answers_the_call() -> None:
    script = parse([b'{"user": "Go on."}'], "a script")
    said = script.reply_to(1, {"tool_calls": [{"id": "a", "function": {"name": "f"}}]})
    assert [message["role"] for message in said] == ["tool", "user"]
    assert script.lines == (ScriptLine("Go on."),)


def test_a_result_that_is_empty_is_the_result() -> None:
    script = parse([b'{"system": "s"}', b'{"user": "a", "tool": ""}'], "a script")
    assert script.reply_to(1, {"tool_calls": [{"id": "a", "function": {"name": "f"}}]}) == [
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": ""}
    ]


def test_at_its_end_a_script_begins_again() -> None:
    script = parse([b'{"user": "a"}', b'{"user": "b"}'], "a script")
    said = [script.reply_to(turn, {"content": "x"})[0]["content"] for turn in range(1, 5)]
    assert (script.opening()[-1]["content"], said) == ("a", ["b", "a", "b", "a"])
    assert "After the last line the first one follows." in " ".join(run("--help").stdout.split())


def test_a_script_that_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the script"):
        load(tmp_path)


class HungServer:
    """Accepts connections and never answers."""

    def __enter__(self) -> str:
        self.socket = socket.create_server(("127.0.0.1", 0))
        return f"http://user:secret@127.0.0.1:{self.socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.mark.parametrize("option", ["--json", "--no-compare"])
def test_a_hung_engine_is_reported_while_waiting(option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST", 0.1)
    with HungServer() as address:
        result = run("--engine", "vllm", "--base-url", address, "--timeout", "0.5", option)
    shown = address.replace("user:secret@", "")
    first, second, *_, last = result.stderr.splitlines()
    assert first == f"tito: turn 1: waiting for {shown} to sample it (0.1 s so far; --timeout 0.5)"
    assert second == f"tito: turn 1: waiting for {shown} to sample it (0.2 s so far; --timeout 0.5)"
    assert last.endswith("no answer in time; allow more with --timeout")
    assert result.exit_code == ENGINE_FAILED
    assert "secret" not in result.output


def test_each_turn_that_takes_long_is_reported_by_its_number() -> None:
    """llama.cpp takes 10 to 20 seconds a turn on a small machine, and each turn's seconds begin at 0."""
    reported = list[int]()

    def waiting(turn: int) -> AbstractContextManager[object]:
        reported.append(turn)
        return nullcontext()

    conversation = Conversation(engine=embedded(seed=1), sampling=Sampling(max_tokens=8))
    rollout = Rollout(conversation, default_script(), 2, waiting=waiting)

    async def all_turns() -> list[RolloutTurn]:
        return [row async for row in rollout.run()]

    assert [row.turn for row in anyio.run(all_turns)] == reported == [1, 2]


def test_an_engine_that_answers_in_time_is_not_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting.waiting_reported(600, "http://engine", 1):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_turn_is_written_to_a_file_as_it_comes(options: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    with path.open("wb") as out:
        command = [sys.executable, "-m", "tito_io", "rollout", "--turns", "100000", "--max-tokens", "1"]
        with subprocess.Popen(
            [*command, "--no-compare", *options], stdout=out, stderr=subprocess.PIPE
        ) as going:
            try:
                wait_for(lambda: path.read_bytes().count(b"\n") > 4)
                still_running = going.poll() is None
            finally:
                going.kill()
    assert still_running
    written = path.read_text(encoding="utf-8").splitlines()
    if options:
        assert [json.loads(line)["turn"] for line in written[:3]] == [1, 2, 3]
    else:
        head = "turn route prompt reused new sampled drift finish note"
        assert written[1].split() == head.split()
        assert [line.split()[:2] for line in written[2:4]] == [["1", "MITO"], ["2", "TITO"]]


def test_the_fast_tokenizer_samples_the_same_rollout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TITO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fast_tokenizer, "texts", lambda _: iter([("words", "hello")]))
    folder = str(write_family(tmp_path / "family"))
    with installed(tmp_path, monkeypatch) as fast:
        told = run("--family", folder, "--turns", "4", "--json", env={"TITO_ROLLOUT_FAST": "1"})
        assert fast.encoded
        checked = run("--family", folder, "--turns", "4", "--json", "--fast", "--check-every", "1")
        shown = run("--family", folder, "--turns", "1", "--fast")
    plain = lines(run("--family", folder, "--turns", "4", "--json"))
    use = lines(told)[-1]["summary"]["fast_tokenizer"]
    assert use.startswith("fastokens is in use: ")
    assert f"\n{use}\n" in shown.stdout
    assert plain[-1]["summary"]["fast_tokenizer"] is None
    assert [*lines(checked)[:-1]] == [*lines(told)[:-1]] == plain[:-1]
    assert {"summary": plain[-1]["summary"] | {"fast_tokenizer": use}} == lines(told)[-1]


def test_a_fast_tokenizer_needs_a_model_folder() -> None:
    result = run("--fast")
    assert (result.exit_code, result.stderr) == (BAD_INPUT, f"tito: {shared.FAST_WITHOUT_FAMILY}\n")


@pytest.mark.parametrize(("drifts", "total"), [([0, 3], 3), ([0, None], None), ([], None)])
def test_drift_is_unknown_where_a_turn_was_not_compared(drifts: list[int | None], total: int | None) -> None:
    """An engine that keeps the ids itself gives no others: its turns are not compared."""
    turn = RolloutTurn(**lines(run("--turns", "1", "--json"))[0])
    rows = [attrs.evolve(turn, turn=place, drift_ids=drift) for place, drift in enumerate(drifts, 1)]
    rollout = Rollout(Conversation(engine=embedded(seed=1)), default_script(), turns=len(rows), rows=rows)
    assert rollout.summary().drift_ids == total


async def _no_masks() -> Result:
    """Run a rollout that wants masks of an engine that was started without them."""
    async with served(embedded_app()) as url:
        options = ("--engine", "vllm", "--base-url", url, "--sampling-masks")
        return await anyio.to_thread.run_sync(run, *options)


def test_an_engine_without_sampling_masks_is_an_option_that_is_wrong() -> None:
    result = anyio.run(_no_masks)
    assert result.exit_code == BAD_INPUT
    assert result.stderr.startswith("tito: --sampling-masks: the server sends none: ")
