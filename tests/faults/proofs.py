"""Faults of proofs: what is asked about a turn, the words that a template looks for, and how often."""

from __future__ import annotations

from tests.faults.fault import Fault

ONCE = ("tests/property/test_once.py",)
QUESTIONS = ("tests/property/test_questions.py",)
SAID = ("tests/property/test_said.py",)
CLOSES = ("tests/core/seams/test_closes.py",)

FAULTS = (
    Fault(
        "a message may be written twice",
        "seams/prove.py",
        "return None if once else Refusal",
        "return None if True else Refusal",
        ONCE,
    ),
    Fault(
        "an empty text that is written in front of the conversation counts as one after the turn",
        "seams/prove.py",
        "others = following_questions(located, ",
        "others = _after(located, ",
        ("tests/core/test_refusal.py",),
    ),
    Fault(
        "of a call without a content an empty one is not tried",
        "seams/turn.py",
        'if calls_of(given) and given.get("content") is None:',
        "if False:",
        CLOSES,
    ),
    Fault(
        "a turn that says nothing is closed as any other",
        "seams/prove.py",
        "return None if silent[-len(tail) :] == tail and silent != without else",
        "return None if True else",
        CLOSES,
    ),
    Fault(
        "a word that earlier messages say is not asked about",
        "seams/experiments.py",
        'for word in filter(None, (*said[: MOST_WORDS - 1], " ".join(said[MOST_WORDS - 1 :]))):',
        "for word in ():",
        SAID,
    ),
    Fault(
        "a template that remembers words is not asked about the whole history",
        "seams/tail.py",
        "if profile is not None and turn.shown_by_history and turn.said and isinstance(proof, Refusal):",
        "if False:",
        SAID,
    ),
    Fault(
        "words of earlier links are forgotten",
        "message.py",
        "known = frozenset[str]() if older is None else older.said[1]",
        "known = frozenset[str]()",
        SAID,
    ),
    Fault(
        "words of the opening count as said",
        "message.py",
        "later = link.part[max(len(self.opening) - link.start, 0) :]",
        "later = link.part",
        SAID,
    ),
    Fault(
        "any number of questions is asked about a turn",
        "seams/prove.py",
        "return (yield from bounded(_proved(turn, environment), most, TOO_MANY))",
        "return (yield from _proved(turn, environment))",
        QUESTIONS,
    ),
    Fault(
        "a certificate rests on any number of renders",
        "seams/certify.py",
        "asking = bounded(_certified(wanted), MOST_RENDERS, wanted.refused(TOO_MANY))",
        "asking = _certified(wanted)",
        QUESTIONS,
    ),
    Fault(
        "a case is asked about in histories of the richest form alone",
        "seams/certify.py",
        "[*sample.loops, *sample.forms]",
        "sample.loops",
        ("tests/core/seams/test_certify.py",),
    ),
    Fault(
        "an unknown history is asked about as an empty one",
        "seams/tail.py",
        "turn.shown_by_history and turn.said",
        "turn.said",
        SAID,
    ),
    Fault(
        "what an assistant says is not asked about",
        "seams/experiments.py",
        'SAYING = frozenset(("system", "user", "assistant", "tool"))',
        'SAYING = frozenset(("system", "user", "tool"))',
        SAID,
    ),
)
