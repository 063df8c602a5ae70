"""Every wrong input has a defined answer: a typed error for a mistake, a refusal for what cannot be."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from tests.core import example
from tito_core import (
    InputError,
    Ledger,
    Located,
    Message,
    OddStop,
    Origin,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    TokenizeError,
    Trajectory,
    Truncated,
    answer,
    continue_questions,
    locate,
    render_key,
    stitch,
    stitch_questions,
    suffix_ids,
)
from tito_core.normalization.compare import same
from tito_core.normalization.receipts import Forgiveness
from tito_core.seams.probe import probe
from tito_core.seams.profile import Profile

SUFFIX = (example.CLOSE,)


def refused(*args: Any, **more: Any) -> Refusal:
    found = answer(stitch_questions(*args, **more), example.tokenize)
    assert isinstance(found, Refusal)
    return found


def made(**wrong: Any) -> Step:
    right: dict[str, Any] = {
        "prompt": [example.user()],
        "completion": [example.assistant()],
        "prompt_ids": [1, 2],
        "completion_ids": [3, 4],
    }
    return Step(**(right | wrong))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"logprobs": [-0.5]}, "logprobs has 1 values for 2 completion_ids"),
        ({"logprobs": ["a", "b"]}, r"logprobs\[0\] is 'a'"),
        ({"logprobs": [True, 0.0]}, r"logprobs\[0\] is True"),
        ({"logprobs": [0.0, float("nan")]}, r"logprobs\[1\] is nan: give a number or None"),
        ({"logprobs": 5}, "logprobs must be a list"),
        ({"prompt_ids": [1, -2]}, r"prompt_ids\[1\] is -2"),
        ({"prompt_ids": [1, 2**32]}, r"prompt_ids\[1\] is 4294967296"),
        ({"prompt_ids": [1.0]}, r"prompt_ids\[0\] is 1.0"),
        ({"completion_ids": [True]}, r"completion_ids\[0\] is True"),
        ({"completion_ids": ["7"]}, r"completion_ids\[0\] is '7'"),
        ({"completion_ids": "77"}, "completion_ids must be a sequence of ids, not str"),
        ({"completion_ids": None}, "completion_ids must be a sequence of ids, not NoneType"),
        ({"prompt": "hi"}, "prompt must be a list of messages, not str"),
        ({"prompt": {"role": "user"}}, "prompt must be a list of messages, not dict"),
        ({"prompt": [{"content": "x"}]}, r"prompt\[0\] has no role"),
        ({"prompt": [{"role": 5}]}, r"prompt\[0\] has no role"),
        ({"prompt": ["hi"]}, r"prompt\[0\] must be a message"),
        ({"prompt": [{"role": "user", 5: "x"}]}, r"prompt\[0\] has the key 5"),
        ({"prompt": [{"role": "user", "content": b"x"}]}, r"prompt\[0\] holds a bytes"),
        ({"completion": [None]}, r"completion\[0\] must be a message"),
        ({"truncated": "yes"}, "truncated is 'yes': give bool"),
        ({"truncated": None}, "truncated is None: give bool"),
        ({"key": 5}, "key is 5: give str or NoneType"),
        ({"logprobs": ["a"] * 2}, r"logprobs\[0\] is 'a': give a number or None"),
        ({"prompt_ids": [10**5000]}, r"prompt_ids\[0\] is a number of thousands of digits"),
        ({"prompt_ledger": None}, "prompt_ledger is None: give Ledger"),
        ({"prompt_ledger": [(Origin.PROMPT, 2)]}, r"prompt_ledger is \[.*: give Ledger"),
        ({"logprobs": [0.0, "b"]}, r"logprobs\[1\] is 'b'"),
        ({"logprobs": "ab"}, "logprobs must be a list of numbers, not str"),
        ({"prompt_ledger": Ledger.prompt(3)}, "prompt_ledger covers 3 ids, prompt_ids has 2"),
    ],
)
def test_a_step_names_what_is_wrong_with_it(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        made(**wrong)


@pytest.mark.parametrize("prompt", ["hi", {"role": "user"}, None, 5, iter(())])
def test_a_prompt_is_a_list_of_messages(prompt: Any) -> None:
    with pytest.raises(InputError, match="prompt must be a list of messages"):
        stitch([example.step()], prompt, SUFFIX, example.tokenize)


@pytest.mark.parametrize("trajectory", [None, 5, "steps", {"a": 1}])
def test_a_trajectory_is_a_sequence_of_steps(trajectory: Any) -> None:
    with pytest.raises(InputError, match="trajectory must be a sequence of steps"):
        stitch(trajectory, [example.user()], SUFFIX, example.tokenize)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_invalid_step_is_named_by_its_index(place: int) -> None:
    trajectory: list[Any] = [example.step(), example.step()]
    trajectory.insert(place, "step")
    with pytest.raises(InputError, match=rf"^trajectory\[{place}\] is a str: give a Step$"):
        stitch(trajectory, [example.user()], SUFFIX, example.tokenize)


def test_a_message_without_a_role_is_named_by_its_place() -> None:
    step = example.step()
    with pytest.raises(InputError, match=r"prompt\[2\] has no role"):
        stitch([step], [*step.messages, {"content": "x"}], SUFFIX, example.tokenize)


@pytest.mark.parametrize("suffix", [[-1], "ab", [1.5], None])
def test_a_suffix_is_made_of_ids(suffix: Any) -> None:
    with pytest.raises(InputError, match="suffix"):
        stitch([example.step()], [example.user()], suffix, example.tokenize)


@pytest.mark.parametrize("answered", [None, "ids", [1.5], [-1], [None], 7])
def test_an_answer_without_ids_is_an_error_not_a_refusal(answered: Any) -> None:
    step = example.step()
    with pytest.raises(TokenizeError, match="tokenize_fn"):
        stitch([step], example.prompt(step), SUFFIX, lambda *_, **__: answered)


@pytest.mark.parametrize(
    "outage", [ConnectionError("down"), StopIteration(3), KeyError("x"), GeneratorExit()]
)
def test_errors_of_tokenize_fn_are_raised_unchanged(outage: BaseException) -> None:
    step = example.step()

    def down(*_: object, **__: object) -> list[int]:
        raise outage

    with pytest.raises(type(outage)) as caught:
        stitch([step], example.prompt(step), SUFFIX, down)
    assert caught.value is outage


def test_no_steps_is_a_refusal() -> None:
    assert refused([], [example.user()], SUFFIX).reason is Reason.NO_PREFIX
    assert refused(Trajectory(), [example.user()], SUFFIX).reason is Reason.NO_PREFIX


def test_an_empty_prompt_is_a_refusal() -> None:
    assert refused([example.step()], [], SUFFIX).reason is Reason.NO_PREFIX


def test_a_suffix_longer_than_the_text_makes_no_id() -> None:
    cut, long = example.step(truncated=True, sampled=[900]), [example.CLOSE] * 99
    assert refused([cut], example.prompt(cut), long).reason is Reason.CLOSE_MISMATCH
    step = example.step()  # it sampled its close, which is where the template goes on
    assert stitch([step], example.prompt(step), long, example.tokenize) == [
        *step.ids,
        *example.tokenize([example.user("more")], add_generation_prompt=True),
    ]


def test_a_wrong_suffix_never_makes_a_wrong_id() -> None:
    step = example.step(truncated=True, sampled=[900])
    assert refused([step], example.prompt(step), [77]).reason is Reason.CLOSE_MISMATCH


def test_a_prompt_that_repeats_a_step_has_nothing_new() -> None:
    step = example.step()
    found = refused([step], list(step.messages), SUFFIX)
    assert found == Refusal(Reason.NOTHING_NEW, "a step ends with all 2 messages")


def test_other_tools_are_a_refusal() -> None:
    step = example.step(key=render_key([{"name": "a"}]))
    found = refused([step], example.prompt(step), SUFFIX, key=render_key([{"name": "b"}]))
    assert found == Refusal(Reason.RENDERED_DIFFERENTLY, "the step of 2 messages has another key")


def test_the_step_with_the_right_key_is_used_among_equals() -> None:
    ours, theirs = example.step(key="a", sampled=[900, 2]), example.step(key="b", sampled=[901, 2])
    for trajectory in ([ours, theirs], [theirs, ours]):
        found = answer(stitch_questions(trajectory, example.prompt(ours), SUFFIX, key="a"), example.tokenize)
        assert isinstance(found, Stitched)
        assert found.step is ours


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "image", "video", "file"])
def test_media_are_a_refusal_wherever_they_are(kind: str) -> None:
    media = {"role": "user", "content": [{"type": kind, kind: {"url": "x"}}]}
    step = example.step()
    assert refused([step], [*step.messages, media], SUFFIX).reason is Reason.MULTIMODAL
    assert refused([], [media], SUFFIX).reason is Reason.MULTIMODAL
    seen = example.step([media], prompt_ids=[1, 2])
    assert refused([seen], example.prompt(seen), SUFFIX).reason is Reason.MULTIMODAL


def test_media_under_a_key_that_is_no_identity_are_seen() -> None:
    step = example.step()
    echoed = [{**step.messages[0], "audio": {"id": "x"}}, step.messages[1], example.user("more")]
    assert refused([step], echoed, SUFFIX).reason is Reason.MULTIMODAL


def test_a_step_that_does_not_end_with_the_assistant_is_a_refusal() -> None:
    step = Step(prompt=[example.user()], completion=[example.user("x")], prompt_ids=[1], completion_ids=[2])
    assert refused([step], [*step.messages, example.user()], SUFFIX).reason is Reason.NOT_ASSISTANT
    bare = Step(prompt=[example.user()], completion=[], prompt_ids=[1], completion_ids=[2])
    assert refused([bare], [*bare.messages, example.user()], SUFFIX).reason is Reason.NOT_ASSISTANT


def test_a_template_that_rejects_the_new_messages_is_a_refusal() -> None:
    step = example.step()
    prompt = [*step.messages, {"role": "critic", "content": "x"}]
    found = refused([step], prompt, SUFFIX)
    assert found.reason is Reason.TEMPLATE_REFUSED
    assert "no role critic" in found.detail


def test_policies_for_odd_stops() -> None:
    step = example.step(sampled=[900, 77])
    assert refused([step], example.prompt(step), SUFFIX).reason is Reason.ODD_STOP
    bridge = example.tokenize([example.user("more")], add_generation_prompt=True)
    kept = stitch(
        [step], example.prompt(step), SUFFIX, example.tokenize, policy=Policy(odd_stop=OddStop.KEEP)
    )
    assert kept == [*step.ids, example.CLOSE, *bridge]
    put = stitch(
        [step], example.prompt(step), SUFFIX, example.tokenize, policy=Policy(odd_stop=OddStop.REPLACE)
    )
    assert put == [*list(step.ids)[:-1], example.CLOSE, *bridge]


@pytest.mark.parametrize(("stop_ids", "replaced"), [((), True), ((77, 78), True), ((78,), False)])
def test_a_text_that_ended_a_turn_is_not_replaced(stop_ids: tuple[int, ...], replaced: bool) -> None:
    """A stop string ends a turn with ids of text; where the stops are known, it is seen."""
    step, policy = example.step(sampled=[900, 77]), Policy(odd_stop=OddStop.REPLACE)
    profile = Profile(suffix=SUFFIX, stop_ids=stop_ids)
    located = locate([step], example.prompt(step), policy=policy)
    assert isinstance(located, Located)
    for asking in (
        stitch_questions([step], example.prompt(step), SUFFIX, policy=policy, profile=profile),
        continue_questions(located, SUFFIX, profile=profile),
    ):
        found = answer(asking, example.tokenize)
        if replaced:
            assert isinstance(found, Stitched)
            assert found.replaced_stop == 77
        else:
            assert isinstance(found, Refusal)
            assert (found.reason, found.detail[:23]) == (Reason.ODD_STOP, "the turn ended with 77,")


@pytest.mark.parametrize("choice", [OddStop.REPLACE, OddStop.KEEP])
def test_a_turn_without_ids_has_no_stop_to_choose_about(choice: OddStop) -> None:
    step = example.step(sampled=[])
    found = refused([step], example.prompt(step), SUFFIX, policy=Policy(odd_stop=choice))
    assert found.reason is Reason.ODD_STOP


def test_policies_for_truncated_turns() -> None:
    step = example.step(sampled=[900], truncated=True)
    bridge = example.tokenize([example.user("more")], add_generation_prompt=True)
    assert stitch([step], example.prompt(step), SUFFIX, example.tokenize) == [
        *step.ids,
        example.CLOSE,
        *bridge,
    ]
    found = refused([step], example.prompt(step), SUFFIX, policy=Policy(truncated=Truncated.REFUSE))
    assert found.reason is Reason.TRUNCATED


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"odd_stop": "refuse"},
            "odd_stop is 'refuse': give OddStop.REFUSE or OddStop.REPLACE or OddStop.KEEP",
        ),
        ({"odd_stop": Truncated.REFUSE}, "odd_stop is <Truncated.REFUSE"),
        ({"truncated": None}, "truncated is None: give Truncated.CLOSE or Truncated.REFUSE"),
        ({"forgive": "dropped_reasoning"}, "forgive takes .*, not dropped_reasoning$"),
        ({"forgive": [Forgiveness.DROPPED_REASONING, "x"]}, "forgive takes .*, not x$"),
        ({"forgive": 5}, "forgive takes .*, not 5$"),
    ],
)
def test_a_policy_takes_enum_members_and_no_strings(wrong: dict[str, Any], words: str) -> None:
    """It would be taken for another."""
    with pytest.raises(InputError, match=f"^{words}"):
        Policy(**wrong)
    assert Policy(forgive=Forgiveness.DROPPED_REASONING).forgive == {Forgiveness.DROPPED_REASONING}


def test_a_policy_forgives_only_what_is_optional() -> None:
    wrong = (Forgiveness.CALL_KEYS, Forgiveness.ABSENT)
    with pytest.raises(InputError) as caught:
        Policy(forgive=wrong)
    message = str(caught.value).replace("Forgiveness.", "")
    assert message == (
        "forgive takes DROPPED_REASONING, RENAMED_TOOL_IDS, TRAILING_WHITESPACE, not ABSENT, CALL_KEYS"
    )


def nested(depth: int) -> Any:
    data: Any = "x"
    for _ in range(depth):
        data = [data]
    return data


@pytest.mark.parametrize(
    "run", [(Origin.SAMPLED, -3), ("sampled", 1), (Origin.PROMPT, 1.0), (Origin.PROMPT, True)]
)
def test_an_invalid_run_is_named(run: Any) -> None:
    with pytest.raises(InputError, match=r"^a run is \("):
        Ledger.prompt(2).then(run)
    with pytest.raises(InputError, match=r"^a run is \("):
        Ledger.of([run])


class Elsewhere:
    """Compares as arrays do."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array is ambiguous")

    __hash__ = None  # type: ignore[assignment]  # never a key


def test_a_value_that_cannot_be_compared_is_named() -> None:
    step = example.step()
    for content in (Elsewhere(), [Elsewhere()]):
        wrong = example.user(content)  # type: ignore[arg-type]  # the error under test
        with pytest.raises(InputError, match=r"^prompt\[0\] holds a Elsewhere: convert it"):
            stitch([step], [wrong, example.assistant(), example.user("b")], SUFFIX, example.tokenize)


def test_messages_may_not_nest_without_end() -> None:
    loop: dict[str, Any] = {"role": "user"}
    loop["content"] = [loop]
    for message in (loop, {"role": "user", "content": nested(5000)}):
        with pytest.raises(InputError, match="nests deeper"):
            made(prompt=[message])


@pytest.mark.parametrize(
    "arguments",
    ['{"a":' * 5000 + "1" + "}" * 5000, "[" * 100_000, '{"a": 1e99999999999999999999}', "9" * 9999],
)
def test_arguments_that_cannot_be_read_stay_text(arguments: str) -> None:
    def calling(text: str) -> dict[str, Any]:
        function = {"name": "f", "arguments": text}
        return {"role": "assistant", "tool_calls": [{"id": "a", "function": function}]}

    assert same(calling(arguments), calling(arguments)) == frozenset()
    assert same(calling(arguments), calling(arguments + " ")) is None


def test_ten_thousand_messages_and_ten_megabytes_do_not_hang() -> None:
    long = [example.user(f"question {i}") for i in range(10_000)]
    big = example.user("x" * 10_000_000)
    step = example.step([*long, big], prompt_ids=[1, 2, 3])
    near = [example.step([*long[:-1], example.user("other"), big], prompt_ids=[1, 2, i]) for i in range(20)]
    started = time.process_time()
    assert stitch([*near, step], example.prompt(step), SUFFIX, example.tokenize)
    assert stitch(near, example.prompt(step), SUFFIX, example.tokenize) is None
    assert time.process_time() - started < 20  # hanging is minutes; this is no measurement


def test_numbers_that_are_not_finite_are_compared_as_they_are() -> None:
    def calling(value: float) -> dict[str, Any]:
        return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": value}}}]}

    assert same(calling(math.nan), calling(math.nan)) is not None
    assert same(calling(math.inf), calling(-math.inf)) is None


def test_a_template_that_loses_the_assistant_has_no_suffix() -> None:
    def mute(messages: Any, *, add_generation_prompt: bool) -> list[int]:
        without_assistant = [message for message in messages if message["role"] != "assistant"]
        return example.tokenize(without_assistant, add_generation_prompt=add_generation_prompt)

    with pytest.raises(InputError, match="loses an assistant's content"):
        suffix_ids(mute)


async def awaited(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    return example.tokenize(messages, add_generation_prompt=add_generation_prompt)


@pytest.mark.parametrize(
    ("tokenize_fn", "kind", "expected"),
    [
        (None, InputError, r"^tokenize_fn is None: give a function from messages to ids$"),
        (awaited, TokenizeError, r"^tokenize_fn is async: await its answers"),
        (
            lambda *_, **__: {"input_ids": [1]},
            TokenizeError,
            r"a mapping: give the list in it, .* input_ids$",
        ),
        (lambda *_, **__: [[1, 2]], TokenizeError, r"a batch: give the list of one conversation's ids$"),
    ],
)
def test_an_invalid_tokenize_fn_is_named(tokenize_fn: Any, kind: type[Exception], expected: str) -> None:
    step = example.step()
    with pytest.raises(kind, match=expected):
        stitch([step], example.prompt(step), (example.CLOSE,), tokenize_fn)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"key": 5}, r"^key is 5: give the string that render_key made"),
        ({"profile": {}}, r"^profile is {}: "),
    ],
)
def test_an_invalid_choice_is_named(given: dict[str, Any], expected: str) -> None:
    step = example.step()
    with pytest.raises(InputError, match=expected):
        stitch([step], example.prompt(step), (example.CLOSE,), example.tokenize, **given)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: Profile(suffix=cast("Any", "ab")), r"^suffix must be a sequence of ids, not str$"),
        (lambda: Profile(suffix=(-1,)), r"^suffix\[0\] is -1: "),
        (lambda: Profile(suffix=(2,), stop_ids=cast("Any", "ab")), r"^stop_ids must be a sequence of ids"),
        (lambda: probe(unasked, cast("Any", "ab")), r"^stop_ids must be a sequence of ids"),
        (lambda: render_key(cast("Any", "find")), r"^tools is 'find': give a list of tools, or None$"),
        (lambda: render_key(cast("Any", {})), r"^tools is {}: give a list of tools, or None$"),
        (lambda: render_key([], cast("Any", [])), r"^template_args is \[\]: give an object, or None$"),
    ],
)
def test_invalid_template_arguments_are_named(make: Callable[[], object], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        make()


def unasked(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    pytest.fail(f"asked for {messages}, {add_generation_prompt=}")
