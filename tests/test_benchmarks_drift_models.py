"""The benchmark of real models' drift: its design, runs that go on, its counts, and its page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx2
import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks.drift.models.__main__ import main, shown, takes_tools
from benchmarks.drift.models.counts import Cell, from_csv, to_csv
from benchmarks.drift.models.design import ENOUGH, FEW, TEMPERATURES, Plan, plans
from benchmarks.drift.models.folder import ModelFolder, RunSettings
from benchmarks.drift.models.measure import Measurement, counted_forest, measured, stored
from benchmarks.drift.models.other_families import OtherFamily, measured_as, other_families
from benchmarks.drift.models.page import (
    DATA,
    PAGE,
    Share,
    changed,
    left_out,
    margins,
    rows_of,
    written,
)
from benchmarks.drift.models.sampler import ConversationSampler, WithoutLogprobs
from benchmarks.drift.models.scripts import LANGUAGES, UserScript, most_conversations
from benchmarks.intervals import wilson
from tests.core.samples.calls import call
from tito_core import InputError
from tito_core.drift.audit import audit
from tito_core.samples import Forest
from tito_io.audit.rendering import AuditRendering
from tito_io.client import TokenClient, rendered_by
from tito_io.embedded import write_family
from tito_io.engines.protocol import OverlongError
from tito_io.engines.registry import embedded
from tito_io.families.family import Family
from tito_io.samples.conversation import Problem

ROOT = Path(__file__).parent.parent
TURNS = 4


# The design.


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_two_conversations_begin_alike(language: str) -> None:
    count = most_conversations()
    scripts = [UserScript.drawn(language, number, 12, seed=0) for number in range(count)]
    assert count >= 200
    assert len({script.users[0] for script in scripts}) == count
    assert {len(script.users) for script in scripts} == {12}
    assert all(one.isascii() for script in scripts for one in script.users) == (language != "other")


def test_there_are_no_more_conversations_than_openings() -> None:
    with pytest.raises(InputError, match="begin unlike each other"):
        UserScript.drawn("code", most_conversations(), 2, seed=0)


def test_each_cell_has_tools_and_limits_in_equal_parts() -> None:
    counts = Counter((one.temperature, one.language, one.tools, one.limit) for one in plans(40, tools=True))
    every = product(TEMPERATURES, LANGUAGES, (False, True), (ENOUGH, FEW))
    assert counts == dict.fromkeys(every, 10)
    assert not any(one.tools for one in plans(4, tools=False))


def test_the_first_conversations_of_all_cells_are_run_before_any_second_one() -> None:
    numbers = [one.number for one in plans(3, tools=True)]
    assert numbers == sorted(numbers)


def test_a_plan_is_read_from_its_name() -> None:
    for plan in plans(4, tools=True):
        assert Plan.parse(plan.name) == plan


# Runs.


def settings(family: Path) -> RunSettings:
    return RunSettings(model="tiny", gguf="tiny.gguf", family=str(family), turns=TURNS, seed=0, tools=True)


def run(folder: ModelFolder, wanted: list[Plan], client: TokenClient | None = None) -> ConversationSampler:
    """Run conversations with the embedded engine."""
    family = Family.load(folder.settings.family)
    sampler = ConversationSampler(
        client or TokenClient(embedded(seed=1), renderer=rendered_by(family)), folder
    )
    anyio.run(sampler.run, folder.missing(iter(wanted)), 3)
    return sampler


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """Return a folder with four conversations of each temperature and language."""
    path = tmp_path_factory.mktemp("drift")
    folder = ModelFolder.begun(path / "runs" / "tiny", settings(write_family(path / "family")))
    assert run(folder, list(plans(4, tools=True))).failed == []
    return folder


@pytest.fixture(scope="module")
def counts(ran: ModelFolder) -> Mapping[Cell, Counter[str]]:
    into = Measurement()
    measured(ran, stored(ran), into)
    assert into.problems == []
    return into.counts


def test_a_run_that_is_started_again_runs_what_is_missing(ran: ModelFolder, tmp_path: Path) -> None:
    folder = ModelFolder.begun(tmp_path / "tiny", ran.settings)
    first, *others = plans(1, tools=True)
    (folder.path / "0.0-english-plain-64-00000.part").write_text("an interrupted conversation\n")
    run(folder, [first])
    kept = first.path(folder.path).read_bytes()
    again = ModelFolder.begun(tmp_path / "tiny", ran.settings)
    assert again.missing(plans(1, tools=True)) == others
    run(again, [first, *others[:1]])
    assert [path.suffix for path in sorted(folder.path.iterdir())] == [".jsonl", ".jsonl", ".json"]
    assert first.path(folder.path).read_bytes() == kept
    assert len(kept.splitlines()) == TURNS


def test_a_conversation_that_fails_is_named_and_not_stored(ran: ModelFolder, tmp_path: Path) -> None:
    class Full(TokenClient):
        async def turn(self, steps: Any, *args: Any, **given: Any) -> Any:
            if len(steps) == 2:
                raise OverlongError("the context is full")
            return await super().turn(steps, *args, **given)

    folder = ModelFolder.begun(tmp_path / "tiny", ran.settings)
    family = Family.load(folder.settings.family)
    plan = next(plans(1, tools=True))
    sampler = run(folder, [plan], Full(embedded(seed=1), renderer=rendered_by(family)))
    assert sampler.failed == [f"{plan.name}: OverlongError: the context is full"]
    assert folder.missing(iter([plan])) == [plan]
    assert [path.name for path in folder.path.iterdir()] == ["settings.json"]


def test_a_folder_takes_no_conversations_with_other_settings(ran: ModelFolder) -> None:
    with pytest.raises(InputError, match=r"tiny: has conversations with other settings .*turns=4.*turns=5"):
        ModelFolder.begun(ran.path, attrs.evolve(ran.settings, turns=5))
    with pytest.raises(InputError, match="give the folder of an earlier run"):
        ModelFolder.opened(ran.path.parent)


def test_llama_cpp_is_asked_for_no_log_probabilities_and_the_adapter_sees_what_it_asked_for() -> None:
    asked: list[dict[str, Any]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(json.loads(request.content))
        return httpx2.Response(200, json={"tokens": [7], "generation_settings": {"n_probs": 0}})

    async def post() -> list[dict[str, Any]]:
        async with httpx2.AsyncClient(transport=WithoutLogprobs(httpx2.MockTransport(answer))) as client:
            body = {"prompt": [1, 2], "n_probs": 1}
            return [
                (await client.post(f"http://x{path}", json=body)).json() for path in ("/completion", "/props")
            ]

    sampled, other = anyio.run(post)
    assert asked == [{"prompt": [1, 2], "n_probs": 0}, {"prompt": [1, 2], "n_probs": 1}]
    assert (sampled["tokens"], sampled["generation_settings"]["n_probs"]) == ([7], 1)
    assert other["generation_settings"]["n_probs"] == 0


def test_a_run_without_a_terminal_prints_lines_with_an_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    with shown("tiny", 40, Console(stderr=True)) as state:
        for _ in range(40):
            state.on_turn(5)
            state.on_end()
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" conversations")[0] for line in lines if line] == ["20 of 40", "40 of 40"]
    assert "ids/s" in lines[0]
    assert "h left" in lines[0]


# Counts.


def forests(folder: ModelFolder) -> dict[str, Forest]:
    return {one.name: one.forest for one in stored(folder) if not isinstance(one, Problem)}


def test_counts_agree_with_the_audit_of_each_conversation(ran: ModelFolder) -> None:
    renderer = AuditRendering(family=Path(ran.settings.family), rendered_as="vllm").load()
    for name, forest in forests(ran).items():
        turns = dict(counted_forest(forest, renderer))
        found = audit(forest, renderer, block=1)
        last = turns[TURNS]
        assert [turn["conversations"] for turn in turns.values()] == [1] * TURNS
        assert bool(last["drifted"]) == bool(found.tally.drifted_conversations), name
        assert sum(map(changed, turns.values())) == found.tally.changed_ids, name
        if any(turn["by_messages"] for turn in turns.values()):
            continue  # how many ids these prompts would have had by ids is not known
        used = sum(turns[turn]["prompt_ids"] for turn in range(2, TURNS + 1))
        lost = found.tally.cached_ids_lost + found.tally.prompt_ids - used
        assert sum(turn["recomputed_ids"] for turn in turns.values()) == lost, name
        assert sum(turn["sampled_ids"] for turn in turns.values()) == found.tally.sampled_ids


def test_a_history_that_drifted_stays_drifted(counts: Mapping[Cell, Counter[str]]) -> None:
    for row in rows_of(counts):
        shares = [counted["drifted"] for counted in row.turns]
        assert shares == sorted(shares)
        assert shares[0] == 0  # the first prompt is a fresh render
    assert sum(row.last["drifted"] for row in rows_of(counts)) > 5


@attrs.frozen
class JoiningRenderer:
    """Renders digits: 0 before an assistant speaks, 2 after each message, and 8 for 5 6."""

    markers: frozenset[int] = frozenset({2})

    def ids(self, messages: Any, _: str | None, *, add_generation_prompt: bool) -> list[int]:
        texts = [("0" if one["role"] == "assistant" else "") + one["content"] + "2" for one in messages]
        spoken = [*texts, "0"] if add_generation_prompt else texts
        return [int(digit) for text in spoken for digit in text.replace("56", "8")]

    def text(self, ids: Any) -> str:
        return "".join("56" if one == 8 else str(one) for one in ids)


def test_a_turn_counts_what_changed_where_and_what_is_computed_again() -> None:
    asked = {"role": "user", "content": "1"}
    first = call("a", [1, 2, 0], [5, 6, 7, 2], [asked], "567", order=1)
    prompt = [*first.step.messages, asked]
    later = call("b", [1, 2, 0, 5, 6, 7, 2, 1, 2, 0], [3], prompt, "3", order=2, truncated=True)
    turns = dict(counted_forest(Forest.of([first, later]), JoiningRenderer()))
    assert turns[1] == Counter(conversations=1, ended=1, sampled_ids=4, prompt_ids=3)
    # Rendered afresh, the second prompt is 1 2 0 8 7 2 1 2 0, of which 6 ids are not cached.
    assert turns[2] == Counter(
        conversations=1,
        drifted=1,
        sampled_ids=1,
        sampled_in_cut=1,
        prompt_ids=10,
        changed_ids=2,
        first_changed=3,
        recomputed_ids=6 - 3,
        retokenized=2,
    )


def test_changes_of_a_turn_that_was_cut_are_counted_apart() -> None:
    asked = {"role": "user", "content": "1"}
    first = call("a", [1, 2, 0], [5, 6, 7], [asked], "567", order=1, truncated=True)
    later = call("b", [1, 2, 0, 5, 6, 7, 2, 1, 2, 0], [3], [*first.step.messages, asked], "3", order=2)
    turns = dict(counted_forest(Forest.of([first, later]), JoiningRenderer()))
    assert (turns[1]["sampled_in_cut"], turns[1]["ended"], turns[2]["changed_in_cut"]) == (3, 0, 2)


def test_a_prompt_that_went_by_messages_is_compared_with_the_turn_before() -> None:
    asked = {"role": "user", "content": "1"}
    first = call("a", [1, 2, 0], [5, 6, 7, 2], [asked], "567", order=1)
    later = call("b", [1, 2, 0, 8, 7, 2, 1, 2, 0], [3], [*first.step.messages, asked], "3", order=2)
    turns = dict(counted_forest(Forest.of([first, later]), JoiningRenderer()))
    assert [turns[2][name] for name in ("by_messages", "drifted", "changed_ids")] == [1, 1, 2]


def test_a_history_that_went_by_messages_once_has_drifted_ever_since() -> None:
    asked = {"role": "user", "content": "1"}
    first = call("a", [1, 2, 0], [5, 6, 7, 2], [asked], "567", order=1)
    second = call("b", [1, 2, 0, 8, 7, 2, 1, 2, 0], [3, 2], [*first.step.messages, asked], "3", order=2)
    third = [*second.step.ids, 1, 2, 0]
    last = call("c", third, [4], [*second.step.messages, asked], "4", order=3)
    turns = dict(counted_forest(Forest.of([first, second, last]), JoiningRenderer()))
    assert [(turn["drifted"], turn["changed_ids"]) for turn in turns.values()] == [(0, 0), (1, 2), (1, 0)]


def test_counts_come_back_from_csv(counts: Mapping[Cell, Counter[str]], tmp_path: Path) -> None:
    file = tmp_path / "drift.csv"
    file.write_text(to_csv(counts))
    read = from_csv(file)
    assert {cell: +counted for cell, counted in read.items()} == {cell: +one for cell, one in counts.items()}
    file.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="give the CSV file that this command wrote"):
        from_csv(file)


def test_a_conversation_that_cannot_be_counted_is_a_problem(ran: ModelFolder) -> None:
    renderer = AuditRendering(family=Path(ran.settings.family)).load()
    into = Measurement()
    into.add("another name", next(iter(forests(ran).values())), renderer, model="tiny")
    assert into.counts == {}
    assert into.problems[0].startswith("tiny: conversation 'another name'")


# Other families.


def other(tmp_path: Path, change: Callable[[str], str]) -> OtherFamily:
    folder = write_family(tmp_path / "models" / "other")
    template = folder / "chat_template.jinja"
    template.write_text(change(template.read_text()))
    (family,) = other_families(folder.parent)
    return family


def test_text_is_counted_in_another_family_without_tools(ran: ModelFolder, tmp_path: Path) -> None:
    into = Measurement()
    measured_as(other(tmp_path, str), stored(ran), "tiny", into)
    assert into.problems == []
    assert {cell.family for cell in into.counts} == {"other"}
    assert not any(cell.tools for cell in into.counts)
    assert sum(one["conversations"] for cell, one in into.counts.items() if cell.turn == 1) == 2 * 9


def test_a_family_whose_template_takes_no_plain_text_is_left_out(ran: ModelFolder, tmp_path: Path) -> None:
    spelled = (
        "message.content"
        if "message.content" in write_family(tmp_path).joinpath("chat_template.jinja").read_text()
        else "message['content']"
    )
    family = other(tmp_path, lambda text: text.replace(spelled, f"('#' ~ {spelled})"))
    into = Measurement()
    measured_as(family, stored(ran), "tiny", into)
    assert left_out(into.counts) == ["other"]


# The page.


def test_intervals_hold_the_share_and_stay_between_0_and_1() -> None:
    assert [round(bound, 3) for bound in wilson(95, 100)] == [0.888, 0.978]
    for count in (1, 5, 200):
        for found in (0, count // 2, count):
            low, high = wilson(found, count)
            assert 0 <= low <= found / count <= high <= 1
    assert wilson(0, 0) == (0, 1)


def test_the_page_states_the_conversations_of_each_cell(counts: Mapping[Cell, Counter[str]]) -> None:
    files = written(counts)
    rows = rows_of(counts)
    assert len(rows) == len(TEMPERATURES) * len(LANGUAGES)
    for row in rows:
        last = Share(row.last["drifted"], 4)
        assert f"| tiny | {row.name} | {row.temperature} | 4 |" in files[PAGE]
        assert str(last) in files[PAGE]
    assert {one.last["conversations"] for one in margins(counts)} == {18}
    assert files[DATA] == to_csv(counts)
    assert all(
        text.startswith("<svg ") and text.count("n = 4") in (0, 3)
        for name, text in files.items()
        if name.endswith(".svg")
    )


def test_cells_with_fewer_conversations_are_shown_with_theirs(counts: Mapping[Cell, Counter[str]]) -> None:
    part = {cell: one for cell, one in counts.items() if cell.language != "code" or cell.limit == ENOUGH}
    page = written(part)[PAGE]
    assert "| tiny | code | 1.0 | 2 |" in page
    assert "| tiny | English | 1.0 | 4 |" in page


def command(*args: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(one) for one in args])
    return done.exit_code, done.output


def test_the_command_writes_the_page_of_a_folder_and_writes_it_again_from_its_data(
    ran: ModelFolder, tmp_path: Path
) -> None:
    page = tmp_path / "docs"
    assert command("--folder", ran.path.parent, "--page", page)[0] == 0
    first = {path.name: path.read_bytes() for path in page.iterdir()}
    assert len(first) == 4
    (page / PAGE).unlink()
    assert command("--page", page) == (0, "")
    assert {path.name: path.read_bytes() for path in page.iterdir()} == first


@pytest.mark.parametrize(
    ("args", "error"),
    [
        ((), "give --gguf FILE to run conversations, --page DOCS to write the page, or both"),
        (("--gguf", "x"), "--gguf needs --folder"),
        (("--families", "tests", "--page", "x"), "--families needs --folder"),
        (("--folder", "x", "--gguf", "no_such_package"), "neither a file nor an installed package"),
        (("--folder", "tests", "--page", "x"), "tests: has no finished conversations"),
        (("--page", "tests/faults"), "give the CSV file that this command wrote"),
        (("--folder", "x", "--gguf", "x", "--conversations", "9999"), "begin unlike each other"),
    ],
    ids=str,
)
def test_bad_input_is_one_line(args: tuple[str, ...], error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    status, output = command(*args)
    assert status == 2
    assert error in output.splitlines()[-1]


def test_tools_are_offered_where_the_template_takes_a_result(tmp_path: Path) -> None:
    folder = write_family(tmp_path)
    assert takes_tools(Family.load(folder))
    (folder / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    assert not takes_tools(Family.load(folder))
