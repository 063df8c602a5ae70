"""Files of conversations through the audit: what is found and held, and that parts add up to the whole."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import attrs
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.audit.audited import KEEPING, Speaker, family_folder, replace, store, user
from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_core import InputError, Message, Step, render_key
from tito_core.drift.breaks import Break, BreakSelection
from tito_core.drift.tally import Tally
from tito_core.samples import Forest, StoredCall
from tito_io.audit.distributed import AuditWork, audit_places
from tito_io.audit.rendering import AuditRendering, FamilyRenderer, read_key
from tito_io.audit.report import FIRST, AuditReport, audit_each, break_to_json, summary
from tito_io.families.folder import FolderError
from tito_io.samples.conversation import Problem
from tito_io.samples.distributed import GroupPlace, group_places
from tito_io.samples.line_groups import ReadOptions
from tito_io.samples.read import StoredConversation, conversations


@pytest.fixture(scope="module")
def renderer(folder: Path) -> FamilyRenderer:
    return AuditRendering(family=folder).load()


def tally_of(path: Path, renderer: FamilyRenderer) -> Tally:
    return audit_each(conversations(path), renderer).tally


def test_random_ids_drift(wild: Path, renderer: FamilyRenderer) -> None:
    report = audit_each(conversations(wild), renderer)
    tally = report.tally
    assert (tally.conversations, tally.drifted_conversations) == (3, 3)
    assert (tally.calls, tally.compared_prompts) == (18, 18)
    assert set(tally.causes) == {"RETOKENIZED"}
    assert tally.actual_breaks == 0
    assert report.whole


def test_a_family_that_keeps_everything_restates_what_its_tokenizer_spelled(
    tidy: Path, renderer: FamilyRenderer
) -> None:
    tally = tally_of(tidy, renderer)
    assert (tally.breaks, tally.changed_ids, tally.ids_lost_to_merging, tally.cached_ids_lost) == (0, 0, 0, 0)
    assert (tally.conversations, tally.compared_prompts, tally.restated_turns) == (3, 18, 12)


@needs_families
@pytest.mark.parametrize("name", NAMES)
def test_in_real_families_wild_ids_drift_and_tidy_ones_only_where_the_template_rewrites(
    name: str, tmp_path: Path
) -> None:
    renderer = AuditRendering(family=FAMILIES / name).load()
    wild, tidy = (
        tally_of(store(tmp_path / f"{one}.jsonl", renderer.family, wild=one), renderer)
        for one in (True, False)
    )
    assert wild.causes.get("RETOKENIZED", 0) + wild.also.get("RETOKENIZED", 0) > 0
    assert wild.causes.get("UNKNOWN", 0) == wild.causes.get("EDITED", 0) == wild.causes.get("TOOLS", 0) == 0
    assert set(tidy.causes) <= {"THINKING", "REWRITTEN", "SEAM"}
    assert tidy.changed_ids <= wild.changed_ids


def test_every_break_is_told_and_few_are_held(wild: Path, renderer: FamilyRenderer) -> None:
    told: list[Break] = []
    report = audit_each(conversations(wild), renderer, show=2, on_break=told.append)
    assert len(told) == report.tally.breaks > 2
    assert len(report.choice.shown) == 2
    assert list(report.choice.shown) == sorted(told, key=lambda one: one.key)[:2]
    assert audit_each(conversations(wild), renderer, show=0).choice.shown == ()


def test_a_line_that_cannot_be_read_is_a_problem_and_stops_nothing(
    wild: Path, renderer: FamilyRenderer, tmp_path: Path
) -> None:
    lines = wild.read_bytes().splitlines(keepends=True)
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"".join([*lines[:6], b"{no\n", *lines[6:]]))
    report = audit_each(conversations(broken), renderer)
    assert report.problems == 1
    assert [one.line for one in report.first] == [7]
    assert report.tally == audit_each(conversations(wild), renderer).tally
    assert not report.whole


def test_a_conversation_whose_key_is_no_key_is_a_problem(renderer: FamilyRenderer) -> None:
    calls = Speaker(renderer.family, wild=True).calls(0, 2)
    odd = [attrs.evolve(call, step=attrs.evolve(call.step, key="gpt")) for call in calls]
    fine = StoredConversation(name="fine", forest=Forest.of(calls), first=1, last=2)
    report = audit_each([attrs.evolve(fine, name="odd", forest=Forest.of(odd)), fine], renderer)
    assert (report.problems, report.tally.conversations) == (1, 1)
    assert "key is 'gpt'" in str(report.first[0])


def test_what_is_wrong_with_the_family_is_no_conversations_fault(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="nowhere"):
        AuditRendering(family=tmp_path / "nowhere").load()


def test_memory_does_not_grow_with_the_file(renderer: FamilyRenderer) -> None:
    found = StoredConversation(
        name="c", forest=Forest.of(Speaker(renderer.family, wild=True).calls(0, 4)), first=1, last=5
    )

    def held(count: int) -> int:
        report = audit_each([found], renderer, show=3)  # what is made once is made
        tracemalloc.start()
        stored = (attrs.evolve(found, name=f"c{number:04}") for number in range(count))
        report = audit_each(stored, renderer, show=3)
        gc.collect()
        now = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert report.tally.conversations == count
        return now

    assert held(120) < held(30) + 2**16  # ninety conversations more, of some thirty kibibytes each


def test_tools_and_arguments_are_those_of_the_calls_key(tmp_path: Path) -> None:
    folder = replace(
        family_folder(tmp_path / "family"),
        chat_template__jinja="{{ tools | tojson if tools else 'none' }}{{ mode | default('') }}<|done|>",
    )
    given = AuditRendering(family=folder, tools=[{"name": "given"}], template_args={"mode": "fast"}).load()
    said = [{"role": "user", "content": "hi"}]

    def text(key: str | None) -> str:
        return given.text(given.ids(said, key, add_generation_prompt=True))

    assert text(None) == '[{"name": "given"}]fast<|done|>'
    assert text(render_key([{"name": "own"}], {"mode": "slow"})) == '[{"name": "own"}]slow<|done|>'
    assert text(render_key()) == "none<|done|>"
    for number in range(200):
        text(render_key([{"name": str(number)}]))
    assert len(given.bound) <= 64


def test_a_call_whose_arguments_are_text_is_rendered_as_an_engine_renders_it(tmp_path: Path) -> None:
    quoting = KEEPING.replace("{{ m.content }}", "{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}")
    renderer = AuditRendering(
        family=replace(family_folder(tmp_path / "family"), chat_template__jinja=quoting)
    ).load()

    def history(arguments: object) -> list[Message]:
        called = {"type": "function", "function": {"name": "f", "arguments": arguments}}
        return [user("hi"), {"role": "assistant", "content": "", "tool_calls": [called]}, user("and?")]

    sent = renderer.family.ids(history({"x": 3}), add_generation_prompt=True)
    step = Step(
        prompt=history('{"x": 3}'),
        completion=[{"role": "assistant", "content": "yes"}],
        prompt_ids=sent,
        completion_ids=renderer.family.encode("yes<|done|>"),
        key=render_key(),
    )
    forest = Forest.of([StoredCall(name="t0", order=0, step=step)])
    tally = audit_each([StoredConversation(name="c", forest=forest, first=1, last=1)], renderer).tally
    assert (tally.compared_prompts, tally.breaks) == (1, 0)


@pytest.mark.parametrize("key", ["", "{}", "[1, 2]", "[[], {}, 3]", "gpt"])
def test_a_key_that_holds_no_tools_is_named(key: str) -> None:
    with pytest.raises(InputError, match="render_key"):
        read_key(key)


def test_markers_are_the_special_tokens_and_the_stops(renderer: FamilyRenderer) -> None:
    texts = {renderer.text([number]) for number in renderer.markers}
    assert texts >= {"<|turn|>", "<|done|>", "<|over|>"}


def test_json_names_causes_and_parts(wild: Path, renderer: FamilyRenderer) -> None:
    report = audit_each(conversations(wild), renderer, show=1)
    data = orjson.loads(orjson.dumps(break_to_json(report.choice.shown[0])))
    assert (data["cause"], data["part"], data["also"]) == ("retokenized", "content", [])
    assert data["used"][0].keys() == {"id", "text"}
    told = orjson.loads(orjson.dumps(summary(report)))
    assert told["changed_ids_rate"] == told["changed_ids"] / told["restated_ids"]
    assert told["causes"] == {"retokenized": told["breaks"]}
    assert summary(AuditReport(choice=BreakSelection(0)))["broken_turns_rate"] is None


def _work(folder: Path, *, every_break: bool = True) -> AuditWork:
    return AuditWork(
        rendering=AuditRendering(family=folder),
        reading=ReadOptions(),
        block=16,
        show=4,
        every_break=every_break,
    )


def test_parts_of_a_file_add_up_to_the_whole(wild: Path, folder: Path, renderer: FamilyRenderer) -> None:
    """What machines make of a conversation each, in any order, is what one process makes of the file."""
    told: list[Break] = []
    whole = audit_each(conversations(wild), renderer, show=4, on_break=told.append)
    found = [one for one in group_places(wild, ReadOptions()) if isinstance(one, GroupPlace)]
    parts = [audit_places([place], _work(folder)) for place in found]
    for order in (parts, parts[::-1], [parts[1], parts[2], parts[0]]):
        report = AuditReport(choice=BreakSelection(4))
        for part in order:
            report += part.report
        assert report == whole
    assert [one for part in parts for one in part.breaks] == told
    assert audit_places(found, _work(folder, every_break=False)).breaks == ()
    assert audit_places(found, _work(folder, every_break=False)).report == whole


def test_a_file_that_changed_under_a_machine_is_a_problem(wild: Path, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(wild.read_bytes())
    found = [one for one in group_places(copy, ReadOptions()) if isinstance(one, GroupPlace)]
    copy.write_bytes(b"{no\n" + wild.read_bytes())
    assert audit_places(found, _work(folder)).report.problems > 0
    copy.unlink()
    (gone, *_) = audit_places(found, _work(folder)).report.first
    assert gone == Problem(1, "the file cannot be read again: No such file or directory")


PROBLEMS = st.lists(
    st.builds(Problem, st.integers(1, 60), st.sampled_from(("a", "b"))), max_size=30, unique=True
)
REPORTS = st.builds(
    lambda problems, breaks: AuditReport(tally=Tally(breaks=breaks), choice=BreakSelection(3)).with_problems(
        problems
    ),
    PROBLEMS,
    st.integers(0, 9),
)


@given(REPORTS, REPORTS, REPORTS)
def test_reports_add_up_in_any_order_and_in_any_groups(
    one: AuditReport, two: AuditReport, three: AuditReport
) -> None:
    assert (one + two) + three == one + (two + three) == (three + one) + two
    assert one + two == two + one
    assert one + AuditReport(choice=BreakSelection(3)) == one
    assert len((one + two).first) <= FIRST
    assert (one + two).problems == one.problems + two.problems


def test_conversations_are_read_as_they_come(wild: Path, renderer: FamilyRenderer) -> None:
    """No conversation is read before the one before it was audited."""
    at: list[int] = []
    read = iter(conversations(wild))

    def watched() -> Iterator[StoredConversation | Problem]:
        for number, one in enumerate(read):
            at.append(number)
            yield one

    seen: list[tuple[str, int]] = []
    audit_each(watched(), renderer, on_break=lambda one: seen.append((one.conversation, len(at))))
    assert {(name, count) for name, count in seen} == {("c0", 1), ("c1", 2), ("c2", 3)}
