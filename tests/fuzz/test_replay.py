"""Seeds of the fuzzers are accepted, and changed ones are accepted or refused with a documented error."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.fuzz.command import main
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Target
from tests.fuzz.targets import TARGETS

CHANGES = 8
"""How many changes of each seed are tried here. A fuzzer tries thousands a second."""
BYTES = 64_000
"""The most bytes of all seeds together."""


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_accepted(name: str) -> None:
    target = TARGETS[name]
    refused = [seed for seed in target.seeds if not target.run(seed)]
    assert refused == []


@pytest.mark.parametrize("name", TARGETS)
def test_changed_seeds_raise_documented_errors_alone(name: str) -> None:
    target, random = TARGETS[name], Random(name)  # noqa: S311  # the same changes each time
    for seed in target.seeds:
        for _ in range(CHANGES):
            target.run(mutated(seed, random, as_json=target.json, longest=1 << 14))


@pytest.mark.whole
def test_some_changed_seeds_are_accepted_and_some_refused() -> None:
    target, random = TARGETS["vllm"], Random(0)  # noqa: S311  # likewise
    changed = [mutated(target.seeds[0], random, as_json=True, longest=1 << 14) for _ in range(40)]
    assert {target.run(data) for data in changed} == {True, False}


def test_an_input_is_tried_with_every_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "input").write_bytes(b"")
    main(["--replay", str(tmp_path / "input")], standalone_mode=False)
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == list(TARGETS)


def test_seeds_are_small() -> None:
    assert sum(len(seed) for target in TARGETS.values() for seed in target.seeds) < BYTES


def test_another_exception_is_a_finding() -> None:
    def parse(data: bytes) -> object:
        return {b"": 0}[data]

    target = Target(name="broken", parsers={"only": (parse, b"")}, errors=(ValueError,))
    assert target.run(b"\x00")
    with pytest.raises(KeyError):
        target.run(b"\x00a")
