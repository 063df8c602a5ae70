"""The comparison of training: arms differ in ids alone, and a run that was stopped goes on as before."""

from __future__ import annotations

import json
from importlib.util import find_spec
from math import exp, isnan
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner

from benchmarks.training import rows
from benchmarks.training.__main__ import main
from benchmarks.training.game import RIGHT, TURNS, answer, called, guessed, scripted
from benchmarks.training.mismatch import LARGEST, Mismatch
from benchmarks.training.page import write_page
from benchmarks.training.results import Estimate, Result, differences
from benchmarks.training.rollout import Rollout
from benchmarks.training.rows import ARMS, batch_of, paired, render, rendered_row
from benchmarks.training.setting import END, HEADER, SETTINGS, Setting
from tito_core import Step
from tito_io.families import Family

TORCH = pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed: the group `training`")


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Return a family in which a letter is a token, so that a text has one tokenization."""
    return family_of(tmp_path_factory.mktemp("letters"), merges=[])


@pytest.fixture(scope="module")
def merging(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Return a family in which `12` is a token, too."""
    return family_of(tmp_path_factory.mktemp("merging"), merges=[("1", "2")])


def family_of(folder: Path, merges: list[tuple[str, str]]) -> Family:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415  # as tests elsewhere

    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(one) for one in merges)]
    tokenizer = Tokenizer(models.BPE({one: place for place, one in enumerate(letters)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", HEADER, END])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": END, "chat_template": "{{ messages }}"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Family.load(folder)


def played(setting: Setting, family: Family, turns: list[list[int]], *, exact: bool) -> Rollout:
    """Return a game whose turns are given ids, as an arm samples it."""
    game = Rollout(15, 0, setting.opening())
    for turn in turns:
        text = family.decode(turn).removesuffix(END)
        rendered = family.ids(game.messages, tools=list(setting.tools) or None, add_generation_prompt=True)
        kept = game.steps[-1].ids.tolist() if exact and game.steps else []
        tail = family.encode(setting.tail("higher"))
        step = Step(
            prompt=game.messages,
            completion=[message_of(setting, text)],
            prompt_ids=[*kept, *tail] if kept else rendered,
            completion_ids=[*turn],
            logprobs=[-0.01 * (place + 1) for place in range(len(turn))],
        )
        game.add(setting, message_of(setting, text), step)
    return game


def message_of(setting: Setting, text: str) -> dict[str, Any]:
    if not setting.tools:
        return {"role": "assistant", "content": text}
    thought, _, rest = text.partition("</think>")
    arguments = rest.partition('"arguments": ')[2].partition("}")[0] + "}"
    call = {"name": "guess", "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "reasoning_content": thought.removeprefix("<think>").strip(),
        "tool_calls": [{"id": "1", "type": "function", "function": call}],
    }


def written(family: Family, number: str) -> list[int]:
    return family.encode(f'So.\n<tool_call>{{"name": "guess", "arguments": {number}}}</tool_call>{END}')


PLAIN = SETTINGS["plain"]


# The arms.


def test_where_nothing_can_drift_all_arms_train_the_same(letters: Family) -> None:
    family = PLAIN.family(letters)
    turns = [
        written(family, '{"number": 1}'),
        written(family, '{"number":12}'),
        written(family, '{"number":15}'),
    ]
    found = []
    for arm in ARMS.values():
        batch = batch_of(arm, [played(PLAIN, family, turns, exact=arm.exact)], PLAIN, family)
        assert batch.drifted == [False]
        (row,) = batch.rows
        length = max(row.places) + 1  # a render ends with the template's line break
        found.append(attrs.evolve(row, ids=row.ids[:length]))
    assert found == [found[0]] * len(ARMS)
    assert sum(found[0].sampled) == len(found[0].places) == sum(map(len, turns))
    assert found[0].old[: len(turns[0])] == [-0.01 * (place + 1) for place in range(len(turns[0]))]


def split(family: Family, ids: list[int]) -> list[int]:
    """Return ids of the same text, in which `12` is two."""
    one = family.encode("12")
    place = ids.index(one[0])
    return [*ids[:place], *family.encode("1"), *family.encode("2"), *ids[place + 1 :]]


def test_arms_differ_where_a_turn_has_another_tokenization(merging: Family) -> None:
    family = PLAIN.family(merging)
    own = split(family, written(family, '{"number":12}'))
    turns = [own, written(family, '{"number":15}')]
    trained = {}
    for arm in ARMS.values():
        batch = batch_of(arm, [played(PLAIN, family, turns, exact=arm.exact)], PLAIN, family)
        assert batch.drifted == [True]
        trained[arm.name] = batch.rows
    assert trained["tito-filtered"] == []
    (exact,), (recomputed,), (by_place,) = (
        trained[name] for name in ("tito", "mito-recomputed", "mito-by-place")
    )
    first = len(own)
    assert [exact.ids[place] for place in exact.places[:first]] == own
    assert [recomputed.ids[place] for place in recomputed.places[: first - 1]] == written(
        family, '{"number":12}'
    )
    assert recomputed.places == by_place.places
    at = own.index(family.encode("1")[0])
    assert all(by_place.sampled[:at])
    assert by_place.sampled[at : first - 1].count(False) > (first - 1 - at) // 2
    assert (
        by_place.old[: first - 1] == exact.old[: first - 1]
    )  # by place: each behind the cut is another id's


def test_a_longer_render_trains_no_id_without_a_log_probability(merging: Family) -> None:
    """The sampled turn was cut before its end; the template writes the end token."""
    family = PLAIN.family(merging)
    game = played(PLAIN, family, [written(family, '{"number":15}')[:-1]], exact=False)
    row = rendered_row(game, 0, render(game, PLAIN, family))
    assert isnan(row.old[-1])
    assert not row.sampled[-1]
    assert paired(row).places == row.places[:-1]


def test_a_template_that_rewrites_drops_what_was_thought(letters: Family) -> None:
    setting = SETTINGS["rewriting"]
    family = setting.family(letters)
    text = setting.turn % ("So.", '{"number":3}')
    turns = [family.encode(text + END), family.encode(setting.turn % ("Now.", '{"number": 15}') + END)]
    trained = {}
    for name in ("tito", "mito-recomputed"):
        arm = ARMS[name]
        batch = batch_of(arm, [played(setting, family, turns, exact=arm.exact)], setting, family)
        (row,) = batch.rows
        trained[name] = family.decode([row.ids[place] for place in row.places])
    assert trained["tito"].startswith(text)
    assert trained["mito-recomputed"].startswith('<tool_call>\n{"name": "guess", "arguments": {"number": 3}}')
    assert "Now." in trained["mito-recomputed"]


def test_dropped_rollouts_count_for_no_mean(merging: Family) -> None:
    family = PLAIN.family(merging)
    right, wrong = written(family, '{"number":15}'), split(family, written(family, '{"number":12}'))
    games = [played(PLAIN, family, turns, exact=True) for turns in ([right], [wrong], [right])]
    assert [game.reward for game in games] == [1.0, 0.0, 1.0]
    assert batch_of(ARMS["tito"], games, PLAIN, family).advantages == pytest.approx([1 / 3, -2 / 3, 1 / 3])
    assert batch_of(ARMS["tito-filtered"], games, PLAIN, family).advantages == [0.0, 0.0]


# The game, the figures and the page.


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=list(SETTINGS))
def test_a_scripted_game_is_one_that_a_model_can_play(setting: Setting) -> None:
    from random import Random  # noqa: PLC0415  # of this test

    rng = Random(4)  # noqa: S311  # games
    for _ in range(50):
        guesses = [*scripted(rng)]
        assert 1 <= len(guesses) <= TURNS
        assert all(one.answer != RIGHT for one in guesses[:-1])
        for one in guesses:
            message = message_of(setting, setting.written(one, rng))
            assert setting.number(message) == one.number


@pytest.mark.parametrize(
    "text",
    [
        "",
        '<tool_call>{"name": "guess", "arguments": {"number": 3}',
        '<tool_call>{"name": "guess"}</tool_call>',
        "<tool_call>[3]</tool_call>",
        '<tool_call>{"name": "other", "arguments": {"number": 3}}</tool_call>',
        '<tool_call>{"name": "guess", "arguments": {"number": 3.5}}</tool_call>',
        '<tool_call>{"name": "guess", "arguments": {"number": true}}</tool_call>',
    ],
)
def test_a_call_that_is_not_valid_guesses_nothing(text: str) -> None:
    assert called(text) is None
    assert guessed("[]") is None
    assert answer(3, 2) == "lower"


def test_estimates_of_the_divergence() -> None:
    found = Mismatch.of([-1.0, -3.0], [-2.0, -2.0])
    assert found.k1 == 0.0
    assert found.k3 == pytest.approx((exp(1) - 2 + exp(-1)) / 2)
    assert (found.ratio_mean, found.ratio_max) == pytest.approx(((exp(1) + exp(-1)) / 2, exp(1)))
    assert Mismatch.of([0.0], [-1e9]).ratio_max == exp(LARGEST)


def run_of(arm: str, seed: int, rewards: list[float], of: int) -> Result:
    names = (
        *("turns", "drifted", "dropped", "clipped", "gradient_norm", "trained_ids", "unsampled_ids", "k1"),
        *("k3", "ratio_mean", "ratio_max", "own_k3", "prompt_ids", "cached_ids", "encoded_ids", "seconds"),
        *("by_messages", "sampling", "rendering", "training"),
    )
    lines = [
        {"update": place, "of": of, "reward": reward, **dict.fromkeys(names, 1.0)}
        for place, reward in enumerate(rewards)
    ]
    return Result("small", "plain", arm, seed, lines)


def test_differences_are_taken_seed_by_seed() -> None:
    base = [run_of("tito", 0, [0.1] * 12, 12), run_of("tito", 1, [0.9] * 12, 12)]
    other = [run_of("x", 1, [1.0] * 12, 12), run_of("x", 2, [0.0] * 12, 12)]
    found = differences(other, base, "last")
    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert (found.half, found.n) == (None, 1)
    assert differences(other[1:], base, "last") is None
    assert Estimate.of([1.0, 2.0, 3.0]).half == pytest.approx(4.303 / 3**0.5)


def stored(folder: Path, runs: list[Result]) -> Path:
    for one in runs:
        path = folder / one.model / one.setting / one.arm / f"seed-{one.seed}"
        path.mkdir(parents=True)
        (path / "updates.jsonl").write_text("".join(json.dumps(line) + "\n" for line in one.updates))
    return folder


def test_a_page_of_runs_that_are_not_finished_says_how_many_are(tmp_path: Path) -> None:
    runs = [
        run_of("tito", 0, [0.25] * 3, 3),
        run_of("tito", 1, [0.5] * 3, 3),
        run_of("mito-recomputed", 0, [0.5] * 3, 3),
        run_of("mito-recomputed", 1, [0.0], 3),
    ]
    page = tmp_path / "ab.md"
    files = [*write_page(stored(tmp_path / "runs", runs), page)]
    assert sorted(files) == sorted(str(path) for path in tmp_path.glob("ab*"))
    text = page.read_text()
    assert "3 runs came to their end" in text
    assert "| tito | 2 | 0.375 ± 1.589 |" in text
    assert "| mito-recomputed | 1 | 0.500 | +0.250 | 0.500 | +0.250 |" in text
    assert "| tito-filtered | 0 |" in text
    assert (tmp_path / "ab.csv").read_text().count("\n") == 1 + 3 + 3 + 3 + 1


def test_what_is_missing_is_named() -> None:
    for args, problem in (
        ([], "give --folder"),
        (["--folder", "x", "--page", "y"], "belong together"),
        *(
            ()
            if find_spec("torch")
            else [(["--folder", "x", "--model", "small"], "pip install --group training")]
        ),
        *([(["--folder", "x"], "needs --gguf FILE")] if find_spec("torch") else ()),
    ):
        done = CliRunner().invoke(main, args)
        assert done.exit_code != 0
        assert problem in done.output


# With torch.


@TORCH
def test_the_loss_is_clipped_where_a_ratio_left_its_range() -> None:
    import torch  # noqa: PLC0415  # it may be missing

    from benchmarks.training.learner import clipped_loss  # noqa: PLC0415  # likewise

    old = torch.tensor([-1.0, -1.0, -1.0, -1.0])
    new = (old + torch.tensor([0.0, 0.5, 0.5, -0.5])).requires_grad_()
    losses, clipped = clipped_loss(new, old, torch.tensor([1.0, 1.0, -1.0, 1.0]))
    assert losses.tolist() == pytest.approx([-1.0, -1.2, exp(0.5), -exp(-0.5)])
    assert clipped.tolist() == [False, True, False, False]
    losses.sum().backward()
    assert new.grad is not None
    assert new.grad.tolist() == pytest.approx([-1.0, 0.0, exp(0.5), -exp(-0.5)])


@TORCH
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_that_was_stopped_goes_on_as_if_it_was_not(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal up to the rounding of floats, which may depend on where tensors lie in memory."""
    # A model that was hardly taught never finds a number, and would learn nothing.
    monkeypatch.setattr(
        rows, "advantages", lambda rewards: [1.0 - 2 * (place % 2) for place in range(len(rewards))]
    )
    from benchmarks.training.plan import PLANS  # noqa: PLC0415  # as below
    from benchmarks.training.run import Run  # noqa: PLC0415  # it imports torch

    plan = attrs.evolve(PLANS["small"], updates=3, groups=2, size=2, lessons=8, save_every=1)
    figures = []
    for arm in ("tito", "mito-by-place"):
        run = Run(plan=plan, setting=SETTINGS[setting], arm=ARMS[arm], seed=1, folder=tmp_path / "one")
        run.train(lambda _: None)
        other = attrs.evolve(run, folder=tmp_path / "two")
        for updates in (1, 3):
            attrs.evolve(other, plan=attrs.evolve(plan, updates=updates)).train(lambda _: None)
        timed = {"seconds", "sampling", "rendering", "training", "of"}
        pairs = [
            [{name: value for name, value in line.items() if name not in timed} for line in one.updates()]
            for one in (run, other)
        ]
        assert len(pairs[0]) == len(pairs[1]) == 3
        for one, other_one in zip(*pairs, strict=True):
            assert one == pytest.approx(other_one, rel=1e-3, abs=1e-5)
        assert pairs[0][0]["gradient_norm"] > 0
        figures.append(pairs[0][0])
    assert abs(figures[0]["k1"]) < 1e-5
    assert figures[0]["ratio_max"] < 1.001
