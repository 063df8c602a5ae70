"""Vectors of the set `trap`: what implementations often get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from .conversations import (
    ANSWER,
    CALL,
    HELLO,
    MORE,
    QUESTION,
    SPLIT,
    SYSTEM,
    TOOLS,
    answer,
    call,
    calling,
    parts,
    question,
    result,
)
from .oracle import Message
from .scenario import ALLOWED, Chat, Scenario, Turn

_trap = partial(Scenario, template="chatml")
SPLIT_TURN, PLAIN_TURN = Turn(ANSWER, pieces=SPLIT), Turn(ANSWER)


def trap() -> Iterator[Scenario]:
    """Yield the scenarios of the set."""
    for scenarios in (
        _spelling,
        _seams,
        _closes,
        _cut,
        _odd_stops,
        _reasoning,
        _calls,
        _restated,
        _branches,
        _repeated,
        _markers_in_texts,
        _dependent,
    ):
        yield from scenarios()


def _spelling() -> Iterator[Scenario]:
    """Yield turns whose text a tokenizer writes with other ids."""
    for name, title, content, pieces in (
        ("split-word", "The model sampled a word in two tokens.", "However it is", SPLIT),
        ("bytes", "The model sampled a word byte by byte.", "However it is", ("«However»",)),
        (
            "split-number",
            "The model sampled a number in other groups of digits.",
            "1234",
            ("«1»", "«2»", "34"),
        ),
        (
            "overlapping-merge",
            "The model sampled a longer token than a greedy tokenizer.",
            "1234",
            ("12", "34"),
        ),
        ("split-spaces", "The model sampled two spaces one by one.", "However  so", (*SPLIT, "«  »")),
    ):
        turn = Turn(answer(content), pieces=pieces)
        yield _trap(name=f"trap/spelling/{name}", title=title, chat=[HELLO, turn, MORE])
    yield _trap(
        name="trap/spelling/earlier-turn",
        title="An earlier turn, and not the last, has ids that a tokenizer does not write.",
        chat=[HELLO, SPLIT_TURN, QUESTION, Turn(answer("It is 46")), MORE],
    )
    yield _trap(
        name="trap/spelling/special-by-bytes",
        title="The model wrote the text of a stop token without sampling that token.",
        chat=[
            HELLO,
            Turn(
                answer("Write <|im_end|> last"),
                said="Write <|im_end|> last",
                pieces=("«Write <|im_end|> last»",),
            ),
            MORE,
        ],
    )


def _seams() -> Iterator[Scenario]:
    """Yield texts that merge with what the template writes beside them."""
    yield _trap(
        name="trap/seam/after-generation-prompt",
        title="The turn begins with line breaks, which a render merges with that of the generation prompt.",
        chat=[HELLO, Turn(answer("\n\nHello"), pieces=("\n\n",)), MORE],
    )
    yield _trap(
        name="trap/seam/new-message-begins-with-line-break",
        title="A new message begins with a line break, which is one token with that of its header.",
        chat=[HELLO, PLAIN_TURN, question("\nHello")],
    )
    yield _trap(
        name="trap/seam/new-message-merges-with-close",
        title="A new message ends with a full stop, which is one token with the line break of the close.",
        template="close-of-text",
        chat=[HELLO, PLAIN_TURN, question("It is so.")],
    )
    for name, title, pieces, stop in (
        ("merged", "in one token with the full stop before it", (".\n",), ("<|im_end|>",)),
        ("apart", "in a token of its own", ("«.»", "«\n»"), ("<|im_end|>",)),
        ("missing", "not at all: the stop came first", ("«.»",), ("<|im_end|>",)),
    ):
        said = "However.\n" if name != "missing" else "However."
        yield _trap(
            name=f"trap/seam/line-break-before-stop-{name}",
            title=f"The model sampled the line break of the close {title}.",
            template="close-of-text",
            chat=[HELLO, Turn(answer("However."), said=said, pieces=pieces, stop=stop), MORE],
        )
    yield _trap(
        name="trap/seam/plain-close",
        title="The close is ordinary text, and one token ends the turn.",
        template="plain-close",
        chat=[HELLO, Turn(answer("However."), pieces=("«.»",), stop=("\n\n",)), MORE],
        refusal=ALLOWED,
    )


def _closes() -> Iterator[Scenario]:
    """Yield closes of which more or less was sampled than one stop."""
    yield _trap(
        name="trap/close/sampled-whole",
        title="The engine returned the line break after the stop, too.",
        chat=[HELLO, Turn(ANSWER, stop=("<|im_end|>", "«\n»")), MORE],
    )
    yield _trap(
        name="trap/close/sampled-with-opener",
        title="The engine went on to the token that opens the next message.",
        chat=[HELLO, Turn(ANSWER, stop=("<|im_end|>", "«\n»", "<|im_start|>")), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/close/stop-sampled-twice",
        title="The engine returned the stop twice.",
        chat=[HELLO, Turn(ANSWER, stop=("<|im_end|>", "<|im_end|>")), MORE],
        refusal=ALLOWED,
    )
    for template, name, title, stop in (
        ("repeated", "one-stop", "The stop begins and ends the close. One was sampled.", ["<|e|>"]),
        (
            "repeated",
            "whole",
            "The close was sampled; the stop begins and ends it.",
            ["<|e|>", "<|n|>", "<|e|>"],
        ),
        ("double", "one-stop", "The close is the stop twice, and one was sampled.", ["<|e|>"]),
        ("double", "whole", "The close is the stop twice, and both were sampled.", ["<|e|>", "<|e|>"]),
    ):
        yield _trap(
            name=f"trap/close/{template}-{name}",
            title=title,
            template=f"{template}-close",
            chat=[HELLO, Turn(ANSWER, stop=tuple(stop)), MORE],
        )
    yield _trap(
        name="trap/close/late",
        title="The template closes a turn only when another message follows.",
        template="late-close",
        chat=[HELLO, PLAIN_TURN, QUESTION, MORE],
    )
    yield _trap(
        name="trap/close/next-marker-is-the-stop",
        title="The sampled stop is the marker of the next message, which is not written again.",
        template="markers",
        chat=[HELLO, Turn(ANSWER, stop=("<|user|>",)), MORE],
    )


def _cut() -> Iterator[Scenario]:
    """Yield turns that ended without a stop."""
    for name, title, content, pieces in (
        ("in-word", "A turn was cut inside a word; the close is missing.", "How", ("How",)),
        ("before-stop", "A turn was cut before its stop.", "However it is", ()),
        ("in-number", "A turn was cut in a number that goes on in no other message.", "It is 12", ()),
        ("at-once", "A turn was cut before it said anything.", "", ()),
    ):
        yield _trap(
            name=f"trap/cut/{name}",
            title=title,
            chat=[HELLO, Turn(answer(content), pieces=pieces, cut=True), MORE],
            refusal=ALLOWED,
        )
    yield _trap(
        name="trap/cut/in-character",
        title="A turn was cut inside a character: its bytes are no text.",
        chat=[HELLO, Turn(answer("Hello \ufffd"), said="Hello ", stop=("#f09f91",), cut=True), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/cut/merges-with-close",
        title="A turn was cut after a full stop, which a render merges with the line break of the close.",
        template="close-of-text",
        chat=[HELLO, Turn(answer("However."), pieces=("«.»",), cut=True), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/cut/in-close",
        title="A turn was cut after the first token of the close, before the stop.",
        template="close-of-text",
        chat=[HELLO, Turn(ANSWER, stop=("«\n»",), cut=True), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/cut/markers",
        title="A turn was cut where the next marker would have been the stop.",
        template="markers",
        chat=[HELLO, Turn(ANSWER, cut=True), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/cut/in-call",
        title="A turn was cut inside a tool call, so that the call is text.",
        chat=[QUESTION, Turn(answer('<tool_call>{"name": "add'), cut=True), MORE],
        tools=TOOLS,
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/cut/in-reasoning",
        title="A turn was cut inside its reasoning, which the template then leaves out.",
        template="opens-thinking",
        chat=[HELLO, Turn(answer("", reasoning_content="However it"), said="However it", cut=True), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/cut/earlier-turn",
        title="An earlier turn was cut and closed; the next one continues from there.",
        chat=[HELLO, Turn(answer("How"), cut=True), QUESTION, Turn(answer("It is 46")), MORE],
    )


def _odd_stops() -> Iterator[Scenario]:
    """Yield turns that ended with another stop than the template writes: it may be kept, or replaced."""
    yield _trap(
        name="trap/odd-stop/end-of-text",
        title="The model ended its turn with another stop token than the template writes.",
        chat=[HELLO, Turn(ANSWER, stop=("<|endoftext|>",)), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/odd-stop/last-turn-is-closed-otherwise",
        title="The template closes the last turn with the sampled stop, an earlier turn with another token.",
        template="channels",
        chat=[HELLO, Turn(ANSWER, stop=("<|return|>",)), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/odd-stop/marker-of-another-role",
        title="The model stopped with the marker of a tool, and a user speaks.",
        template="markers",
        chat=[HELLO, Turn(ANSWER, stop=("<|tool|>",)), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/odd-stop/after-call",
        title="The model ended a call as it ends an answer.",
        template="two-closes",
        chat=[QUESTION, Turn(calling(call()), stop=("<|im_end|>",)), result()],
        tools=TOOLS,
        refusal=ALLOWED,
    )


def _reasoning() -> Iterator[Scenario]:
    """Yield reasoning that a template or a client drops."""
    thought = answer("However it is", reasoning_content="The answer is 46.")
    calls = calling(call(), reasoning_content="I add them.")
    chats: tuple[tuple[str, str, Chat], ...] = (
        (
            "before-question",
            "A question follows reasoning, which a re-render drops.",
            [HELLO, Turn(thought), MORE],
        ),
        (
            "before-result",
            "A result follows reasoning, which a re-render keeps.",
            [QUESTION, Turn(calls), result()],
        ),
        (
            "result-then-question",
            "A result and a question follow reasoning: the question makes a re-render drop it.",
            [QUESTION, Turn(calls), result(), MORE],
        ),
    )
    for name, title, chat in chats:
        yield _trap(
            name=f"trap/reasoning/{name}", title=title, template="drops-reasoning", chat=chat, tools=TOOLS
        )
    yield _trap(
        name="trap/reasoning/empty-block",
        title="The template wrote an empty reasoning block in the last turn, and writes none in a history.",
        template="empty-thought",
        chat=[HELLO, PLAIN_TURN, MORE],
    )
    yield _trap(
        name="trap/reasoning/other-name",
        title="The client restates reasoning as `reasoning`, not as `reasoning_content`.",
        chat=[HELLO, Turn(thought), MORE],
        request=[
            HELLO,
            {"role": "assistant", "content": "However it is", "reasoning": "The answer is 46."},
            MORE,
        ],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/reasoning/dropped-by-client",
        title="The client leaves the reasoning out.",
        chat=[HELLO, Turn(thought), MORE],
        request=[HELLO, answer("However it is"), MORE],
        refusal=ALLOWED,
    )


def _calls() -> Iterator[Scenario]:
    """Yield tool calls that a template writes in another way than they were sampled."""
    compact = '<tool_call>{"name":"add","arguments":{"a":1}}</tool_call>'
    yield _trap(
        name="trap/calls/compact",
        title="The model wrote a call without spaces, and the template writes it with spaces.",
        chat=[QUESTION, Turn(calling(call()), said=compact), result()],
        tools=TOOLS,
    )
    yield _trap(
        name="trap/calls/text-before",
        title="The model wrote text and a line break before a call, and the parser kept neither.",
        chat=[QUESTION, Turn(calling(call()), said=f"Well.\n{compact}"), result()],
        tools=TOOLS,
    )
    yield _trap(
        name="trap/calls/results-in-another-order",
        title="The results come in another order than the calls.",
        chat=[QUESTION, Turn(calling(call(), call(number=2))), result(2, "It is 80."), result()],
        tools=TOOLS,
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/calls/empty-result",
        title="A tool returned an empty text.",
        chat=[QUESTION, CALL, result(content="")],
        tools=TOOLS,
    )
    yield _trap(
        name="trap/calls/reused-id",
        title="A call has the id of an earlier call to another tool, and the template names results by ids.",
        template="names-results",
        chat=[QUESTION, CALL, result(), Turn(calling(call("multiply"))), result(content="It is 408.")],
        tools=TOOLS,
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/calls/result-of-an-earlier-call",
        title="A new result answers a call before the last turn, and the template names results by ids.",
        template="names-results",
        chat=[QUESTION, CALL, result(), Turn(calling(call("multiply", 2))), result(2), result()],
        tools=TOOLS,
        refusal=ALLOWED,
    )


def _restated() -> Iterator[Scenario]:
    """Yield requests that restate a turn in another form."""
    (plain_call,) = CALL.message["tool_calls"]

    def restated(arguments: str) -> Message:
        function = {**plain_call["function"], "arguments": arguments}
        return {**CALL.message, "tool_calls": [{**plain_call, "function": function}]}

    for name, title, message in (
        ("arguments-as-text", "The client restates arguments as JSON text.", restated('{"a": 1}')),
        (
            "arguments-as-compact-text",
            "The client restates arguments as JSON without spaces.",
            restated('{"a":1}'),
        ),
        ("null-content", "The client restates an empty content as null.", {**CALL.message, "content": None}),
        (
            "missing-content",
            "The client leaves an empty content out.",
            {name: value for name, value in CALL.message.items() if name != "content"},
        ),
        (
            "other-key-order",
            "The client restates a message with its keys in another order.",
            dict(reversed(list(CALL.message.items()))),
        ),
    ):
        yield _trap(
            name=f"trap/restated/{name}",
            title=title,
            chat=[QUESTION, CALL, result()],
            tools=TOOLS,
            request=[QUESTION, message, result()],
        )
    renamed = {**CALL.message, "tool_calls": [{**plain_call, "id": "other1234"}]}
    yield _trap(
        name="trap/restated/renamed-ids",
        title="The client gives calls and results other ids.",
        chat=[QUESTION, CALL, result()],
        tools=TOOLS,
        request=[QUESTION, renamed, {**result(), "tool_call_id": "other1234"}],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/restated/one-part",
        title="The client restates a text as a list of one part.",
        chat=[HELLO, PLAIN_TURN, MORE],
        request=[HELLO, {"role": "assistant", "content": parts(ANSWER["content"])}, MORE],
    )
    yield _trap(
        name="trap/restated/no-calls",
        title="The client adds an empty list of calls to the turn.",
        chat=[HELLO, PLAIN_TURN, MORE],
        request=[HELLO, {**ANSWER, "tool_calls": []}, MORE],
    )
    spaced = answer("  However it is ")
    yield _trap(
        name="trap/restated/trimmed",
        title="The model sampled white space around its text, and the client trims it.",
        chat=[HELLO, Turn(spaced), MORE],
        request=[HELLO, answer("However it is"), MORE],
        refusal=ALLOWED,
    )
    yield _trap(
        name="trap/restated/trimmed-by-template",
        title="The model sampled white space around its text, and the template trims it.",
        template="trims",
        chat=[HELLO, Turn(spaced, said="  However it is "), MORE],
    )
    yield _trap(
        name="trap/restated/new-message-trimmed",
        title="The template trims white space around a new message.",
        template="trims",
        chat=[HELLO, PLAIN_TURN, question("  It is so \n")],
    )


def _branches() -> Iterator[Scenario]:
    """Yield trajectories in which the latest step is not the one that the request continues."""
    other = Turn(answer("It is not"), pieces=())
    yield _trap(
        name="trap/branch/retry",
        title="The same prompt was answered twice, and the request continues the first answer.",
        chat=[HELLO, PLAIN_TURN, MORE],
        more=[HELLO, other],
    )
    yield _trap(
        name="trap/branch/longer-branch",
        title="Another branch is longer, and the request continues the shorter one.",
        chat=[HELLO, PLAIN_TURN, QUESTION],
        more=[HELLO, other, QUESTION, Turn(answer("46")), MORE, Turn(answer("It is so"))],
    )
    yield _trap(
        name="trap/branch/other-conversation",
        title="The trajectory holds another conversation, too.",
        chat=[SYSTEM, HELLO, PLAIN_TURN, MORE],
        more=[HELLO, other],
    )
    yield _trap(
        name="trap/branch/edited-question",
        title="The last question was edited, so that the request continues the turn before it.",
        chat=[HELLO, PLAIN_TURN, question("Is it 12?")],
        more=[HELLO, PLAIN_TURN, QUESTION, Turn(answer("It is 46"))],
    )


def _repeated() -> Iterator[Scenario]:
    """Yield texts that stand at several places, so that a search finds the wrong one."""
    same = "Hello there"
    yield _trap(
        name="trap/repeated/user-s-text",
        title="The model repeats what the user said.",
        chat=[HELLO, Turn(answer(same)), MORE],
    )
    yield _trap(
        name="trap/repeated/new-message",
        title="The new message repeats what the model said.",
        chat=[MORE, Turn(answer(same)), HELLO],
    )
    yield _trap(
        name="trap/repeated/earlier-turn",
        title="The model says the same in two turns, in other ids.",
        chat=[HELLO, Turn(ANSWER, pieces=SPLIT), MORE, Turn(ANSWER), MORE],
    )
    yield _trap(
        name="trap/repeated/role-name",
        title="The model says the name of a role.",
        chat=[HELLO, Turn(answer("user")), question("assistant")],
    )


def _markers_in_texts() -> Iterator[Scenario]:
    """Yield texts that spell special tokens: the tokenizer of the vectors makes special tokens of them."""
    for name, title, content in (
        ("question", "A question spells the close and a header.", "So<|im_end|>\n<|im_start|>assistant\n12"),
        ("question-ends", "A question ends with the text of the stop.", "What is <|im_end|>"),
    ):
        yield _trap(
            name=f"trap/markers/{name}",
            title=title,
            chat=[HELLO, PLAIN_TURN, question(content)],
            refusal=ALLOWED,
        )
    yield _trap(
        name="trap/markers/result",
        title="A tool result spells the close.",
        chat=[QUESTION, CALL, result(content="12<|im_end|>34")],
        tools=TOOLS,
        refusal=ALLOWED,
    )


def _dependent() -> Iterator[Scenario]:
    """Yield templates in which what follows the turn depends on the conversation before it."""
    chats: tuple[tuple[str, str, Chat], ...] = (
        (
            "counts",
            "Every message is written with its number.",
            [HELLO, Turn(ANSWER, said=ANSWER["content"]), MORE],
        ),
        ("measures", "The length of the turn's text is written after it.", [HELLO, PLAIN_TURN, MORE]),
        ("quotes", "The turn's text is written again in the generation prompt.", [HELLO, PLAIN_TURN, MORE]),
        (
            "counts-results",
            "Results are numbered through the conversation.",
            [QUESTION, CALL, result(), Turn(calling(call(number=2))), result(2)],
        ),
        ("moving-system", "The system text moves to the last question.", [SYSTEM, HELLO, PLAIN_TURN, MORE]),
        ("window", "The template shows the last two messages only.", [HELLO, PLAIN_TURN, MORE]),
        (
            "drops-late-system",
            "The template drops late system messages, and there is no such message.",
            [SYSTEM, HELLO, PLAIN_TURN, MORE],
        ),
    )
    for template, title, chat in chats:
        yield _trap(
            name=f"trap/dependent/{template}", title=title, template=template, chat=chat, refusal=ALLOWED
        )
    for name, title, new in (
        (
            "new-message",
            "A switch in the new message changes the generation prompt.",
            question("Add them /no_think"),
        ),
        ("history", "A switch in an earlier message changes the generation prompt.", MORE),
    ):
        first = question("Hello /no_think") if name == "history" else HELLO
        yield _trap(
            name=f"trap/dependent/switch-in-{name}",
            title=title,
            template="switch",
            chat=[first, Turn(ANSWER), new],
            refusal=ALLOWED,
        )
    yield _trap(
        name="trap/dependent/tools-move",
        title="The tools stand in the last question, so that a re-render takes them out of an earlier one.",
        template="tools-with-question",
        chat=[HELLO, PLAIN_TURN, MORE],
        tools=TOOLS,
    )
