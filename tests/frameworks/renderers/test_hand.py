"""Bridges and renders beside those of the renderers that were written by hand, where there are such."""

from __future__ import annotations

import pytest

from tests.frameworks.renderers.models import (
    BY_HAND,
    QUESTION,
    SAID,
    SHAPES,
    SYSTEM,
    case_of,
    conversations,
    model,
)
from tests.frameworks.renderers.refused import REFUSED, RESULTS
from tito_core import TemplateRefused

ANALYSIS = "<|channel|>analysis<|message|>"
SECOND = "<|end|><|start|>functions.weather to=assistant<|channel|>commentary<|message|>"
RETURN = "## Return of functions.weather:{}"
DIFFERENT = {
    # The template ends no tool outputs before a user's message.
    ("deepseek-v3", "tool then user"): ("", "tool▁outputs▁end\uff5c><\uff5c"),
    # The template writes nothing where a turn was cut; by hand it is closed with the end of a text.
    **{("glm4.5", shape): ("", "<|endoftext|>") for shape in SHAPES if "cut" in shape},
    # By hand, the generation prompt is longer than the template's. After a final answer the template has an
    # end of message, which the one by hand leaves out.
    ("gpt-oss", "user"): (
        "<|end|><|start|>user<|message|>And tomorrow?<|end|><|start|>assistant",
        f"<|start|>user<|message|>And tomorrow?<|end|><|start|>assistant{ANALYSIS}",
    ),
    **{("gpt-oss", shape): ("", ANALYSIS) for shape in SHAPES if "cut" in shape},
    **{  # the template quotes tool results, too
        ("gpt-oss", shape): (f'"rain, 7 C"{rest}', f"rain, 7 C{rest}{ANALYSIS}")
        for shape, rest in (
            ("tool", "<|end|><|start|>assistant"),
            ("tool then user", "<|end|><|start|>user<|message|>And tomorrow?<|end|><|start|>assistant"),
        )
    },
    ("gpt-oss", "two tools"): (
        f'"rain, 7 C"{SECOND}"sun"<|end|><|start|>assistant',
        f"rain, 7 C{SECOND}sun<|end|><|start|>assistant{ANALYSIS}",
    ),
    # This template names the role, and has a backslash and an `n` for the line break.
    **{
        ("kimi-k2", shape): (
            f"tool<|im_middle|>{RETURN.format(0)}\\n",
            f"weather<|im_middle|>{RETURN.format(0)}\n",
        )
        for shape in ("tool", "tool then user")
    },
    ("kimi-k2", "two tools"): tuple(
        f"{role}<|im_middle|>{RETURN.format(0)}{line}rain, 7 C<|im_end|>"
        f"<|im_system|>{role}<|im_middle|>{RETURN.format(1)}{line}"
        for role, line in (("tool", "\\n"), ("weather", "\n"))
    ),
}
"""What template and hand write where they differ. `test_bridge.py` shows that ours is the template's."""
QUOTED = "llama3"
"""The template quotes tool results; by hand, the quotes count as content."""


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", BY_HAND)
def test_a_bridge_is_the_one_by_hand(name: str, shape: str) -> None:
    one, case = model(name), case_of(shape, name)
    prompt, completion = one.sampled([SYSTEM, QUESTION], case)
    own, hand = (
        renderer.bridge_to_next_turn(prompt, completion, case.after, tools=case.tools)
        for renderer in (one.renderer(thinking_retention="all"), one.by_hand(thinking_retention="all"))
    )
    if (name, shape) in REFUSED:
        assert own is None
        assert hand is not None
        return
    tails = [one.tokenizer.decode(each.token_ids[len(prompt) + len(completion) :]) for each in (own, hand)]
    assert differing(*tails) == DIFFERENT.get((name, shape), ("", ""))
    if (name, shape) in DIFFERENT:
        return
    assert own.token_ids == hand.token_ids
    assert own.message_indices == hand.message_indices
    assert (own.is_content == hand.is_content) is not (name == QUOTED and shape in RESULTS)
    assert own.sampled_mask == hand.sampled_mask
    assert own.message_roles == hand.message_roles
    assert own.message_tool_names == hand.message_tool_names


def differing(own: str, hand: str) -> tuple[str, str]:
    """Return what is left of two texts without what they share at both ends, special tokens being whole."""
    start = shared(own, hand)
    if own != hand:
        start = max(own.rfind("<|", 0, start), 0) if "<|" in own[max(start - 2, 0) : start] else start
    own, hand = own[start:], hand[start:]
    stop = shared(own[::-1], hand[::-1])
    return own[: len(own) - stop], hand[: len(hand) - stop]


def shared(first: str, second: str) -> int:
    """Return how many characters two texts share at their beginning."""
    pairs = zip(first, second, strict=False)
    return next(
        (place for place, (one, other) in enumerate(pairs) if one != other), min(map(len, (first, second)))
    )


OTHER_TEXT = {
    # The template breaks the line between calls.
    ("deepseek-v3", "two calls"),
    # By hand, the generation prompt is longer, and results are written without quotes.
    *(("gpt-oss", said) for said in SAID if said != "last answer"),
    # By hand, tools are written otherwise, the system text is another one, and see above.
    *(("kimi-k2", said) for said in ("question", "tools", "last answer", "call", "two calls")),
    # The template takes one call at a time.
    ("llama3", "two calls"),
}
"""Conversations that are written differently. `test_render.py` shows that ours are the template's ids."""
OTHER_BEGINNING = {
    *(("deepseek-v3", said) for said in ("system", "tools", "answer")),
    *(("llama3", said) for said in ("system", "tools", "answer", "call")),
}
"""Conversations whose first id begins a text: it is the first message's, and of no message by hand."""
OTHER_SAMPLED = {
    # What the generation prompt has of a turn is not sampled; by hand it is.
    *(("nemotron3", said) for said in ("answer", "last answer", "call", "two calls")),
    *(("qwen3.5", said) for said in ("last answer", "call")),
    # By hand, the line break after the generation prompt is not sampled, and the channel's name is not.
    *(("glm4.5", said) for said in ("answer", "last answer", "call", "two calls")),
    ("gpt-oss", "last answer"),
    ("llama3", "call"),  # quotes, as in bridges
}
"""Conversations in which other ids count as content. `test_render.py` shows that ours are those sampled."""


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("name", BY_HAND)
def test_a_render_is_the_one_by_hand(name: str, said: str) -> None:
    one, (messages, tools) = model(name), conversations(name)[said]
    if (name, said) == ("llama3", "two calls"):
        with pytest.raises(TemplateRefused, match="single tool-calls"):
            one.renderer().render(messages, tools=tools)
        return
    speaks = messages[-1]["role"] != "assistant"
    own, hand = (
        renderer.render(messages, tools=tools, add_generation_prompt=speaks)
        for renderer in (one.renderer(), one.by_hand())
    )
    assert (own.token_ids == hand.token_ids) is ((name, said) not in OTHER_TEXT)
    if (name, said) in OTHER_TEXT:
        return
    assert (own.message_indices == hand.message_indices) is ((name, said) not in OTHER_BEGINNING)
    first = own.is_content.index(True)
    assert own.message_indices[first:] == hand.message_indices[first:]
    same = [own.is_content == hand.is_content, own.sampled_mask == hand.sampled_mask]
    quoted = name == QUOTED and said == "call"
    assert same == ([False, quoted] if (name, said) in OTHER_SAMPLED else [True, True])
    assert own.message_roles == hand.message_roles
    assert own.message_tool_names == hand.message_tool_names


@pytest.mark.parametrize("name", BY_HAND)
def test_how_long_reasoning_is_kept_is_found_out(name: str) -> None:
    one = model(name)
    assert one.renderer().effective_thinking_retention == one.by_hand().effective_thinking_retention
