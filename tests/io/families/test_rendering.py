"""What a family asks of its template is asked once per rendering, and kept only while it is true."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.io.families.family_folder import CONFIG, freeze, reference, tiny_folder, tiny_tokenizer
from tito_core import (
    Bridge,
    Extension,
    InputError,
    OddStop,
    Policy,
    TemplateRefused,
    TokenizeFn,
    __version__,
    render_key,
    suffix_ids,
)
from tito_core.seams.probe import probe
from tito_core.seams.profile import Profile
from tito_io.families import Family, TokenizerFamily, rendering
from tito_io.families.limits import TemplateLimits
from tito_io.families.stored_profile import StoredProfile

CHATML = (Path(__file__).parent / "templates" / "chatml.jinja").read_text()
DATED = "{{ strftime_now('%Y-%m-%d') }}" + CHATML
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {}}}]
USER = {"role": "user", "content": "hello"}
NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001  # templates print the wall clock, which has no zone
AnyFamily = Family | TokenizerFamily


class Probe:
    """Asks for profiles, and counts how often."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, tokenize_fn: TokenizeFn, stop_ids: Sequence[int]) -> Profile:
        self.asked += 1
        return probe(tokenize_fn, stop_ids)


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch) -> Probe:
    quick = Probe()
    monkeypatch.setattr(rendering, "probe", quick)
    return quick


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TITO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "profiles"


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(monkeypatch.setattr)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "model", CHATML)


@pytest.fixture(params=["folder", "tokenizer"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(kind: str, folder: Path, *, now: datetime = NOON) -> AnyFamily:
    """Return a family as a new process would load it."""
    if kind == "folder":
        return Family.load(folder, clock=lambda: now)
    return attrs.evolve(Family.of(reference(folder)), clock=lambda: now)


def test_equal_arguments_give_one_function(kind: str, folder: Path) -> None:
    family = make(kind, folder)
    one = family.tokenize_fn(tools=TOOLS, effort="high", deep={"a": [1]})
    assert family.tokenize_fn(deep={"a": [1]}, effort="high", tools=[dict(TOOLS[0])]) is one
    others: list[dict[str, Any]] = [
        {},
        {"tools": []},
        {"tools": TOOLS},
        {"documents": []},
        {"n": 1},
        {"n": True},
        {"n": 1.0},
        {"n": "1"},
        {"n": [1]},
        {"n": (1,)},
        {"tools": [{"function": TOOLS[0]["function"], "type": "function"}]},
    ]
    assert len({id(family.tokenize_fn(**other)) for other in others}) == len(others)


def test_what_the_caller_changes_later_changes_no_function(kind: str, folder: Path) -> None:
    family = make(kind, folder)
    tools = json.loads(json.dumps(TOOLS))
    tokenize = family.tokenize_fn(tools=tools)
    before = tokenize([USER], add_generation_prompt=True)
    tools[0]["function"]["name"] = "tell"
    assert tokenize([USER], add_generation_prompt=True) == before
    assert family.tokenize_fn(tools=tools)([USER], add_generation_prompt=True) != before


def test_a_family_remembers_a_limited_number_of_renderings(kind: str, folder: Path) -> None:
    family = make(kind, folder)
    numbers = range(3 * 256)
    made = [family.tokenize_fn(number=number) for number in numbers]
    assert sum(family.tokenize_fn(number=number) is made[number] for number in reversed(numbers)) <= 256
    assert family.tokenize_fn(number=999) is family.tokenize_fn(number=999)


def test_the_suffix_is_that_of_the_rendering(
    kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = make(kind, folder)
    assert family.suffix(tools=TOOLS) == suffix_ids(family.tokenize_fn(tools=TOOLS))
    assert family.suffix() == suffix_ids(family.tokenize_fn())

    def fail(_: TokenizeFn) -> None:
        raise AssertionError("asked twice")

    monkeypatch.setattr(rendering, "suffix_ids", fail)
    assert family.decode(family.suffix()) == "<|im_end|>\n"


def test_a_failure_is_not_remembered(kind: str, tmp_path: Path, cache: Path) -> None:
    family = make(kind, tiny_folder(tmp_path / "x", "{{ raise_exception('no') }}"))
    for _ in range(2):
        with pytest.raises(TemplateRefused):
            family.suffix()
        with pytest.raises(TemplateRefused):
            family.profile()
    losing = make(kind, tiny_folder(tmp_path / "y", "x"))
    with pytest.raises(InputError, match="loses an assistant's content"):
        losing.profile()
    assert not cache.exists()


def test_the_profile_is_that_of_a_whole_probe(folder: Path) -> None:
    family = make("folder", folder)
    asked = probe(family.tokenize_fn(), family.stop_ids)
    assert family.profile().profile == asked
    assert make("folder", folder).profile().profile == asked  # from its file
    assert make("tokenizer", folder).profile().profile == asked


def test_a_profile_is_asked_once_and_read_by_later_processes(
    kind: str, folder: Path, probing: Probe, cache: Path
) -> None:
    family = make(kind, folder)
    profile = family.profile(tools=TOOLS, effort="high")
    assert family.profile(tools=TOOLS, effort="high") is profile
    assert make(kind, folder).profile(tools=TOOLS, effort="high") == profile
    assert probing.asked == 1
    assert len(list(cache.iterdir())) == 1
    assert profile.stop_ids == family.stop_ids == (1,)


def test_the_key_of_a_profile_is_that_of_steps(kind: str, folder: Path, probing: Probe) -> None:
    family = make(kind, folder)
    assert family.profile().key is None
    assert family.profile(tools=[]).key is None
    assert family.profile(tools=TOOLS).key == render_key(TOOLS)
    assert family.profile(tools=TOOLS, effort="high").key == render_key(TOOLS, {"effort": "high"})
    titled = [{"title": "a"}]
    assert family.profile(documents=titled).key == render_key(None, {"documents": titled})
    assert make(kind, folder).profile(tools=TOOLS).key == render_key(TOOLS)
    assert probing.asked == 5


def test_a_damaged_file_is_asked_for_again(kind: str, folder: Path, probing: Probe, cache: Path) -> None:
    profile = make(kind, folder).profile()
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert make(kind, folder).profile() == profile
    assert probing.asked == 2
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_error(
    kind: str, folder: Path, probing: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TITO_CACHE", str(folder / "tokenizer.json"))
    assert make(kind, folder).profile() == make(kind, folder).profile()
    assert probing.asked == 2


def other_tokenizer() -> dict[str, Any]:
    """Return a `tokenizer.json` that encodes spaces in another way."""
    written: dict[str, Any] = json.loads(tiny_tokenizer().to_str())
    return {**written, "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "_"}}


CHANGES: dict[str, dict[str, Any]] = {
    "tokenizer": {"tokenizer__json": other_tokenizer()},
    "template": {"chat_template__jinja": CHATML + " "},
    "a token's text": {"tokenizer_config__json": {**CONFIG, "bos_token": "<pad>"}},
    "an added token": {"added_tokens__json": {"<new>": 326}},
    "stop ids": {"generation_config__json": {"eos_token_id": [1, 4]}},
    "special tokens stay text": {"tokenizer_config__json": {**CONFIG, "split_special_tokens": True}},
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_model_has_another_profile_and_a_copy_has_the_same(
    kind: str, change: str, folder: Path, probing: Probe, cache: Path, tmp_path: Path
) -> None:
    make(kind, folder).profile()
    make(kind, tiny_folder(tmp_path / "copy", CHATML)).profile()
    assert probing.asked == 1
    tiny_folder(folder, **CHANGES[change])
    make(kind, folder).profile()
    assert probing.asked == len(list(cache.iterdir())) == 2


def test_another_library_has_another_profile(
    kind: str, folder: Path, probing: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(kind, folder).profile()
    for name, value in (("library_versions", lambda *_: {"jinja2": "4"}), ("_asking_code", lambda: ["2.0"])):
        module = "tito_io.families.family" if kind == "folder" else "tito_io.families.chat_tokenizer"
        place = module if name == "library_versions" else "tito_io.families.rendering"
        with monkeypatch.context() as patch:
            patch.setattr(f"{place}.{name}", value)
            make(kind, folder).profile()
    assert probing.asked == 3
    assert rendering._asking_code()[0] == __version__
    assert len(rendering._asking_code()) > 50


def test_a_folders_vocabulary_is_not_written_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes up to a second, where the hash of the files takes milliseconds."""
    family = Family.load(folder)
    monkeypatch.setattr("tito_io.families.family.text_digest", None)
    assert len(family.vocabulary_digest) == 64
    assert family.tokenize_fn().origin()["vocabulary"] == family.vocabulary_digest
    monkeypatch.undo()
    assert family.with_special_tokens([]).vocabulary_digest != family.vocabulary_digest


def test_tighter_limits_have_a_profile_of_their_own(folder: Path, probing: Probe) -> None:
    Family.load(folder).profile()
    Family.load(folder, limits=TemplateLimits(characters=1 << 17)).profile()
    Family.load(folder).with_special_tokens(["<new>"]).profile()
    assert probing.asked == 3


def test_a_date_in_the_template_counts_and_the_hour_does_not(
    kind: str, tmp_path: Path, probing: Probe
) -> None:
    """Also in a process that outlives the day."""
    folder = tiny_folder(tmp_path / "dated", DATED)
    now = [NOON]
    family = attrs.evolve(make(kind, folder), clock=lambda: now[0])
    first, suffix = family.profile(), family.suffix()
    now[0] += timedelta(hours=11)
    assert family.profile() is first
    assert make(kind, folder, now=now[0]).profile() == first
    assert probing.asked == 1
    now[0] = NOON + timedelta(days=1)
    assert family.profile() is not first
    assert family.suffix() == suffix
    make(kind, folder, now=now[0]).profile()
    assert probing.asked == 2


def test_what_was_asked_across_midnight_is_not_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = [NOON]

    def until_midnight(tokenize_fn: TokenizeFn, stop_ids: Sequence[int]) -> Profile:
        today[0] += timedelta(days=1)
        return probe(tokenize_fn, stop_ids)

    monkeypatch.setattr(rendering, "probe", until_midnight)
    family = Family.load(tiny_folder(tmp_path / "dated", DATED), clock=lambda: today[0])
    assert family.profile() is not family.profile()
    assert not cache.exists()


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("{{ strftime_now(format or '%H:%M:%S') }}", {"folder", "tokenizer"}),
        ("{% if false %}{{ [1, 2] | random }}{% endif %}", {"tokenizer"}),
    ],
)
def test_no_file_for_what_may_be_another_answer_tomorrow(
    source: str, kinds: set[str], kind: str, tmp_path: Path, probing: Probe, cache: Path
) -> None:
    folder = tiny_folder(tmp_path / "shifty", source + CHATML)
    family = make(kind, folder)
    assert family.profile() is family.profile()
    make(kind, folder).profile()
    assert (probing.asked, cache.exists()) == ((2, False) if kind in kinds else (1, True))


def test_a_template_whose_answers_differ_has_no_file(
    folder: Path, probing: Probe, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differing(tokenize_fn: TokenizeFn, stop_ids: Sequence[int]) -> Profile:
        profile = probing(tokenize_fn, stop_ids)
        return attrs.evolve(profile, facts=attrs.evolve(profile.facts, random=True))

    monkeypatch.setattr(rendering, "probe", differing)
    assert Family.load(folder).profile().profile.facts.random
    assert not cache.exists()


def test_a_template_that_is_exchanged_is_asked_anew(folder: Path, probing: Probe, cache: Path) -> None:
    """Trainers set `tokenizer.chat_template`; the functions ask the object itself."""
    tokenizer = reference(folder)
    family = Family.of(tokenizer)
    before = family.suffix(), family.profile()
    tokenizer.chat_template = CHATML.replace("<|im_end|>", "<eos>")
    assert family.decode(family.suffix()) == "<eos>\n"
    assert family.profile() != before[1]
    assert len(list(cache.iterdir())) == probing.asked == 2


def test_tokens_that_are_added_later_are_another_vocabulary(folder: Path) -> None:
    tokenizer = reference(folder)
    tokenize = Family.of(tokenizer).tokenize_fn()
    before = tokenize.origin()
    tokenizer.add_tokens(["<new>"])
    after = tokenize.origin()
    assert before is not None
    assert after is not None
    assert before["vocabulary"] != after["vocabulary"]


def test_padding_of_a_trainer_makes_no_other_vocabulary(tmp_path: Path, probing: Probe) -> None:
    config = {**CONFIG, "pad_token": "<pad>"}
    folder = tiny_folder(tmp_path / "padding", CHATML, tokenizer_config__json=config)
    make("tokenizer", folder).profile()
    tokenizer = reference(folder)
    tokenizer(["hello", "hello world, so"], padding=True, truncation=True, max_length=3)
    Family.of(tokenizer).profile()
    assert probing.asked == 1


@pytest.mark.whole
def test_two_processes_at_once(folder: Path, cache: Path) -> None:
    program = (
        "import sys; from tito_io.families import Family; from tito_core.data import to_data; import json\n"
        "print(json.dumps(to_data(Family.load(sys.argv[1]).profile().profile)))"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    one, two = (process.communicate(timeout=120)[0] for process in running)
    assert one == two
    assert json.loads(one)["facts"]["openers"]
    assert len(list(cache.iterdir())) == 1


KEEPING = Policy(odd_stop=OddStop.KEEP)
NEXT = [{"role": "user", "content": "go on"}]


def sampled_ids(family: AnyFamily, *text: str, **rendering: Any) -> list[int]:
    """Return a prompt and a completion of two tokens that no tokenizer would choose."""
    prompt = family.tokenize_fn(**rendering)([USER], add_generation_prompt=True)
    return [*prompt, *(index for one in text for index in family.encode(one))]


def test_a_bridge_extends_ids_as_one_made_by_hand(kind: str, folder: Path) -> None:
    family = make(kind, folder)
    ids = sampled_ids(family, "hel", "lo", "<|im_end|>", tools=TOOLS)
    by_hand = Bridge(family.tokenize_fn(tools=TOOLS), family.stop_ids, policy=KEEPING)
    want = by_hand.extend(ids, NEXT)
    found = family.bridge(tools=TOOLS, policy=KEEPING).extend(ids, NEXT)
    assert isinstance(found, Extension)
    assert isinstance(want, Extension)
    assert found.ids == want.ids
    assert family.decode(list(found.added)) == "\n<|im_start|>usergo on<|im_end|>\n<|im_start|>assistant\n"


def test_equal_arguments_give_one_bridge(kind: str, folder: Path) -> None:
    family = make(kind, folder)
    one = family.bridge(tools=TOOLS)
    assert family.bridge(tools=[dict(TOOLS[0])], policy=Policy()) is one
    others = (family.bridge(), family.bridge(tools=TOOLS, policy=KEEPING), family.bridge(spans=False))
    assert len({id(one), *map(id, others)}) == 4
    assert family.bridge(spans=False) is others[2]
    assert (one.spans, others[2].spans) == (True, False)
    assert one.policy == Policy()
    assert one.stop_ids == family.stop_ids
    assert one.suffix == family.suffix(tools=TOOLS)


def extended(family: AnyFamily, *said: str) -> list[list[int]]:
    """Extend a turn by a user message each; the first one of a rendering has a new case."""
    ids, turn = sampled_ids(family, "hel", "lo", "<|im_end|>"), {"role": "assistant", "content": "hello"}
    found = [
        family.bridge(policy=KEEPING).extend(
            ids, [{"role": "user", "content": one}], turn=turn, history=[USER]
        )
        for one in said
    ]
    return [one.ids.tolist() for one in found if isinstance(one, Extension)]


def test_what_a_bridge_learns_is_known_to_later_processes(
    kind: str, folder: Path, probing: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = make(kind, folder)
    assert family.profile().profile.cases == ()
    want = extended(family, "go on")
    assert len(family.profile().profile.cases) == 1

    def fail(*_: object) -> None:
        raise AssertionError("certified twice")

    monkeypatch.setattr("tito_core.seams.growing.certify_questions", fail)
    later = make(kind, folder)
    assert later.profile() == family.profile()
    assert extended(later, "go on") == want
    assert probing.asked == 1


def test_what_two_processes_learn_is_kept_together(kind: str, folder: Path) -> None:
    one, two = make(kind, folder), make(kind, folder)
    assert one.profile() == two.profile()
    extended(one, "go on")
    ids, results = sampled_ids(two, "hel"), [{"role": "tool", "tool_call_id": "a", "content": "so"}]
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": {}}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    two.bridge().extend(ids, results, turn=turn, history=[USER], truncated=True)
    assert len(one.profile().profile.cases) == len(two.profile().profile.cases) == 1
    assert {case.shape for case in make(kind, folder).profile().profile.cases} == {("user",), ("tool",)}


def test_a_file_that_was_written_once_is_not_written_again(kind: str, folder: Path, cache: Path) -> None:
    family = make(kind, folder)
    extended(family, "go on")
    (file,) = cache.iterdir()
    before = file.stat().st_ino
    assert len(extended(family, "go on", "and on", "more")) == 3
    assert file.stat().st_ino == before


def test_a_bridge_of_yesterday_is_not_kept(kind: str, tmp_path: Path, probing: Probe, cache: Path) -> None:
    """One that the caller keeps goes on working; what it learns today is no part of yesterday's file."""
    today = [NOON]
    family = make(kind, tiny_folder(tmp_path / "dated", DATED))
    family = attrs.evolve(family, clock=lambda: today[0])
    one = family.bridge()
    (file,) = cache.iterdir()
    before = file.read_bytes()
    today[0] += timedelta(days=1)
    assert family.bridge() is not one
    assert probing.asked == 2
    ids = sampled_ids(family, "hel", "<eos>")
    one.extend(ids, NEXT, turn={"role": "assistant", "content": "hel"}, history=[USER], truncated=True)
    assert isinstance(one.profile, StoredProfile)
    assert len(one.profile.profile.cases) == 1
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["profile", "stop_ids", "suffix"])
def test_what_a_family_gives_its_bridges_cannot_be_given_again(kind: str, folder: Path, name: str) -> None:
    """It would be taken for a variable of the template, and change nothing."""
    wrong: Any = {name: []}
    with pytest.raises(InputError, match=rf"^{name}: the family sets it itself"):
        make(kind, folder).bridge(**wrong)
