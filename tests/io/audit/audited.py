"""Stored conversations for the audit: sampled by a seeded hand, as no tokenizer spells or tidily."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

from tito_core import (
    Message,
    OddStop,
    Policy,
    Refusal,
    Step,
    TokenizeFn,
    Trajectory,
    answer,
    render_key,
    stitch_questions,
    suffix_ids,
)
from tito_core.samples import StoredCall
from tito_io.families.family import Family
from tito_io.samples.forms.tito import write_calls

CUT = 2
"""The turn of each conversation that is cut short, where ids are wild."""
BRANCH = 3
"""The turn that is asked again in other words."""


def user(words: str) -> Message:
    return {"role": "user", "content": words}


class Speaker:
    """Samples turns, wild or tidy, and goes on from them by ids."""

    def __init__(self, family: Family, *, wild: bool) -> None:
        """Ask the family for its close."""
        self.family = family
        self.fn: TokenizeFn = self.family.tokenize_fn()
        self.suffix = suffix_ids(self.fn)
        self.stop = [*self.suffix, *family.stop_ids, *_stops(family)][0]
        self.wild = wild
        special = set(self.family.tokenizer.get_added_tokens_decoder())
        self.words = [
            number
            for number in range(self.family.vocab_size)
            if number not in special and "\ufffd" not in self.family.decode([number])
        ]

    def sampled(self, dice: random.Random, *, cut: bool) -> tuple[list[int], Message]:
        words = dice.choices(self.words, k=6)
        letters = [number for letter in "perhaps" for number in self.family.encode(letter)]
        ids = [*words, *letters, *words[:2]] if self.wild else self.family.encode(f"It is {dice.random()}.")
        said = {"role": "assistant", "content": self.family.decode(ids)}
        return ids if cut else [*ids, self.stop], said

    def step(self, past: Trajectory, messages: Sequence[Message], dice: random.Random, *, cut: bool) -> Step:
        """Take a turn, by ids where the kernel can."""
        policy = Policy(odd_stop=OddStop.KEEP)
        found = answer(
            stitch_questions(past, messages, self.suffix, policy=policy, key=render_key()), self.fn
        )
        ids, said = self.sampled(dice, cut=cut)
        if not isinstance(found, Refusal):
            return found.then(completion=[said], completion_ids=ids, truncated=cut)
        sent = list(self.fn([dict(one) for one in messages], add_generation_prompt=True))
        return Step(
            prompt=messages,
            completion=[said],
            prompt_ids=sent,
            completion_ids=ids,
            truncated=cut,
            key=render_key(),
        )

    def calls(self, seed: int, turns: int) -> list[StoredCall]:
        """Return a conversation with a branch, and a cut turn where ids are wild."""
        dice, past, found = random.Random(seed), Trajectory(), list[StoredCall]()  # noqa: S311  # seeded on purpose
        messages = [user("hello")]
        for number in range(turns):
            if number == BRANCH:
                other = [*messages[:-1], user("or else?")]
                found.append(
                    StoredCall(name="side", order=number, step=self.step(past, other, dice, cut=False))
                )
            step = self.step(past, messages, dice, cut=self.wild and number == CUT)
            past = past.append(step)
            found.append(StoredCall(name=f"t{number}", order=number, step=step))
            messages = [*step.messages, user(f"question {number}")]
        return found


def _stops(family: Family) -> list[int]:
    """Return the stops that a folder's notes name; some templates leave the close to the next opener."""
    notes = family.path / "meta.json"
    names = json.loads(notes.read_text())["stop_tokens"] if notes.is_file() else []
    found = [family.tokenizer.token_to_id(name) for name in names]
    return [number for number in found if number is not None]


def store(path: Path, family: Family, *, wild: bool, conversations: int = 3, turns: int = 5) -> Path:
    """Write conversations as tito stores them."""
    speaker = Speaker(family, wild=wild)
    with path.open("wb") as file:
        for number in range(conversations):
            write_calls(file, f"c{number}", speaker.calls(number, turns))
    return path


def family_folder(path: Path) -> Path:
    """Write the embedded engine's folder, with a template that keeps what was said."""
    from tito_io.embedded import write_family  # noqa: PLC0415  # training its tokenizer takes a moment

    return write_family(path)


def replace(path: Path, **files: str) -> Path:
    """Write other texts into a folder; names with `__` for the dot."""
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return path


KEEPING: str = (
    "{% for m in messages %}<|turn|>{{ m.role }}\n{{ m.content }}<|done|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
"""A template that keeps everything and adds nothing."""
