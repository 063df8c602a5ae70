"""What the stored files hold. Do not change these values: files of released versions have them.

A new kind of value gets a new name here, and a file in the folder of the version that begins to write it.
"""

from __future__ import annotations

from tito_core import OddStop, Origin, Policy, SamplingMask, Step, Stitched, Trajectory, Truncated, try_stitch
from tito_core.media.ranges import MediaRange
from tito_core.samples import RoutedExperts, StoredCall, WeightVersion
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe
from tito_core.seams.profile import Profile
from tito_core.testing import toy_named
from tito_io.serve.commit import Commit, TurnOrigin

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"city": "Zürich"}'},
}
FIRST = Step(
    prompt=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Rain? \u2614"}],
    completion=[{"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]}],
    prompt_ids=[1, 2, 70000, 3],
    completion_ids=[4, 5, 6],
    logprobs=[-0.5, None, -0.125],
    key="tools: look",
    sampling_mask=SamplingMask.of([[4, 7], None, [6]]),
)
SECOND = Step(
    prompt=[
        *FIRST.messages,
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "wet"}]},
    ],
    completion=[{"role": "assistant", "content": "Yes"}],
    prompt_ids=[*FIRST.ids, 8, 9, 9, 9, 10],
    completion_ids=[11],
    truncated=True,
    prompt_ledger=FIRST.ledger.then(
        (Origin.INSERTED_CLOSE, 1), (Origin.MEDIA, 3), (Origin.GENERATION_PROMPT, 1)
    ),
    media=[MediaRange(modality="image", identity="0" * 64, offset=8, length=3, collapsed=(9,))],
)
TRAJECTORY = Trajectory([FIRST, SECOND])
POLICY = Policy(truncated=Truncated.REFUSE, odd_stop=OddStop.KEEP, further_keys=["weight"])
CALLS = (
    StoredCall(
        name="a",
        step=FIRST,
        order=1,
        finish_reason="tool_calls",
        weight_versions=[WeightVersion(version="7", start=0, stop=2)],
        routed_experts=RoutedExperts(data=bytes(range(6)), dtype="uint8", shape=(6, 1, 1)),
        reward=0.5,
        metadata={"task": ["t", 1]},
    ),
    StoredCall(name="b", step=SECOND, order=2, finish_reason="length", reward=0.5),
)
COMMITS = (
    Commit(
        call=StoredCall(name="a", step=FIRST, order=1, finish_reason="tool_calls"),
        parent=None,
        response="chatcmpl-1",
        at=1000.5,
        origin=TurnOrigin(dialect="chat", route="MITO", requested=1000.0, request={"temperature": 1.0}),
    ),
    Commit(
        call=StoredCall(name="b", step=SECOND, order=2, finish_reason="length"),
        parent="a",
        response="chatcmpl-2",
        at=1002.5,
        origin=TurnOrigin(
            dialect="chat", route="TITO", requested=1002.0, forgiven=("MEDIA",), expected=7, cached=4
        ),
    ),
)
TOY = toy_named("chatml")
ASKED, TURN = [{"role": "user", "content": "Rain?"}], {"role": "assistant", "content": "Yes"}


def profile() -> Profile:
    """Return a profile that has the case of `TURN`."""
    growing = GrowingProfile(probe(TOY))
    stitched(growing)
    return growing.profile


def stitched(known: Profile | GrowingProfile) -> Stitched:
    """Return the prompt after `TURN`, made with a profile."""
    prompt_ids = TOY(ASKED, add_generation_prompt=True)
    ids = TOY([*ASKED, TURN], add_generation_prompt=False)[len(prompt_ids) :]
    step = Step(prompt=ASKED, completion=[TURN], prompt_ids=prompt_ids, completion_ids=ids)
    found = try_stitch([step], [*step.messages, *ASKED], known.suffix, TOY, profile=known)
    assert isinstance(found, Stitched)
    return found
