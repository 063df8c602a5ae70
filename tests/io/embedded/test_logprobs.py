"""Log-probabilities that are no model's, yet behave like one's."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tito_io.embedded import SampledId, vocabulary
from tito_io.embedded.logprobs import REACH, alternatives, chat_logprobs, logprob, prompt_logprobs, rank

IDS = st.lists(st.integers(0, 1999), max_size=6)
ID = st.integers(0, 1999)


def test_a_character_is_shown_with_the_id_that_completes_it() -> None:
    words = vocabulary()
    ids = [*words.encode("a"), *words.bytes_of(words.spell_out("→")[-1])]
    steps = [SampledId(one, -1.0, tuple(ids[max(at - REACH, 0) : at]), "") for at, one in enumerate(ids)]
    shown = chat_logprobs(steps, 0, as_ids=False)["content"]
    assert "".join(one["token"] for one in shown) == words.decode(ids)
    assert [one["token"] for one in shown[:2]] == ["a", ""]
    assert shown[-1]["bytes"] == list("→".encode())


@given(IDS, ID)
def test_they_are_finite_and_below_zero(before: list[int], chosen: int) -> None:
    value = logprob(before, chosen)
    assert math.isfinite(value)
    assert -10 < value < 0


@given(IDS, IDS, ID)
def test_only_the_ids_just_before_matter(far: list[int], near: list[int], chosen: int) -> None:
    before = [*near, *[7] * REACH][:REACH]
    assert logprob([*far, *before], chosen) == logprob(before, chosen)


@given(IDS, ID, st.integers(0, 20))
def test_what_is_shown_is_no_more_than_certain(before: list[int], chosen: int, count: int) -> None:
    others = alternatives(before, chosen, count, 2000)
    assert chosen not in [one for one, _ in others]
    assert len({one for one, _ in others}) == len(others)
    assert all(left >= right for (_, left), (_, right) in pairwise(others))
    assert (
        math.fsum(math.exp(value) for value in (logprob(before, chosen), *(v for _, v in others))) <= 1 + 1e-6
    )


@given(IDS, ID, st.integers(1, 20))
def test_the_chosen_one_is_among_the_top_or_beside_it(before: list[int], chosen: int, count: int) -> None:
    others = alternatives(before, chosen, count, 2000)
    place = rank(before, chosen)
    assert len(others) == (count - 1 if place <= count else count)
    assert sum(value > logprob(before, chosen) for _, value in others) == min(place - 1, count)


@given(st.lists(st.integers(0, vocabulary().size - 1), min_size=2, max_size=6), st.integers(1, 5))
def test_ranks_of_a_place_are_distinct_and_by_log_probability(prompt: list[int], count: int) -> None:
    for entry in prompt_logprobs(prompt, count)[1:]:
        assert entry is not None
        ranked = {one["rank"]: one["logprob"] for one in entry.values()}
        assert len(ranked) == len(entry)
        assert set(range(1, count + 1)) <= set(ranked)
        likely = [ranked[rank] for rank in range(1, count + 1)]
        assert likely == sorted(likely, reverse=True)
