"""Faults of reading sampled turns: reasoning, content and tool calls."""

from __future__ import annotations

from functools import partial

from tests.faults.fault import Fault

REPLIES = partial(
    Fault,
    package="tito_io",
    suites=("tests/io/engines/replies", "tests/io/engines/vllm/test_hermes.py"),
    plugins=("anyio.pytest_plugin",),
)
STREAMS = partial(REPLIES, suites=("tests/io/dialects/test_streams.py",))
LAWS = partial(REPLIES, suites=("tests/io/engines/test_laws.py",))

FAULTS = (
    REPLIES(
        "half of a character in a sampled call stays half",
        "engines/replies/hermes.py",
        'return HALVES.sub("\\ufffd", text)',
        "return text",
        suites=("tests/io/serve/test_half_characters.py",),
    ),
    REPLIES(
        "a callback that cannot be awaited is found after the turn was sampled",
        "engines/protocol.py",
        "    if watch is not None and not (iscoroutinefunction(watch)",
        "    if False and not (iscoroutinefunction(watch)",
        suites=("tests/io/engines/test_http_engine.py",),
    ),
    REPLIES(
        "a list of models that fails stops the turn",
        "engines/http_engine.py",
        "return self._without_list(error)",
        "raise error",
        suites=("tests/io/engines/test_http_engine.py",),
    ),
    REPLIES(
        "a log-probability that was rounded up has no notice",
        "engines/protocol.py",
        """            object.__setattr__(self, "notices", (*self.notices, ROUNDED))
""",
        "",
        suites=("tests/io/engines/test_laws.py",),
    ),
    LAWS(
        "vLLM's answer may be to another prompt",
        "engines/replies/shapes.py",
        "        check.echo(seen, sent)\n",
        "",
    ),
    LAWS(
        "SGLang's answer may be to another prompt",
        "engines/sglang/replies.py",
        "check.echo(prompt, question.sent)",
        "pass",
    ),
    LAWS(
        "Dynamo's answer may be to another prompt",
        "engines/dynamo/replies.py",
        "            check.echo(prompt, sent)\n",
        "            pass\n",
    ),
    REPLIES(
        "ids of calls are longer than Mistral's templates take",
        "engines/replies/hermes.py",
        "[:9].decode()",
        "[:10].decode()",
    ),
    REPLIES(
        "reasoning that is not closed ends with the turn, whatever is called in it",
        "engines/replies/hermes.py",
        "return Thought(begin=begin, open=True)",
        'return Thought(text[begin:].strip("\\n"), len(text))',
    ),
    REPLIES(
        "white space beside calls is content",
        "engines/replies/hermes.py",
        "        if calls:\n            pieces",
        "        if not calls:\n            pieces",
    ),
    REPLIES(
        "letters open Mistral's reasoning",
        "engines/replies/output_parser.py",
        "any_of(dict.fromkeys((*TAGS, *known)))",
        "any_of(tags)",
    ),
    REPLIES(
        "a sampled id that the template rejects makes a call text",
        "engines/replies/template_calls.py",
        "in ([call.id for call in calls], ()):",
        "in ([call.id for call in calls],):",
    ),
    REPLIES(
        "a template that writes ids in the place of names is asked with other ids alone",
        "engines/replies/template_calls.py",
        "for ids in (IDS, NAMED_IDS):",
        "for ids in (IDS,):",
    ),
    REPLIES(
        "a text that spells the Hermes form in letters is a call, whatever the template writes",
        "engines/replies/output_parser.py",
        "if found.calls or hermes.CALL not in tags.ids:",
        "if found.calls:",
    ),
    REPLIES(
        "a call in the Hermes form hides those in the template's own",
        "engines/replies/output_parser.py",
        "        if found.calls or hermes.CALL not in tags.ids:\n            return found\n",
        "",
    ),
    REPLIES(
        "a template is asked for calls with an empty text first",
        "engines/replies/template_calls.py",
        'for content in (None, ""):',
        'for content in ("", None):',
    ),
    REPLIES(
        "the word of a numbered call is not its id",
        "engines/replies/call_syntax.py",
        "        if not self.numbered:\n",
        "        if True:\n",
    ),
    REPLIES(
        "a broken call hides those after it",
        "engines/replies/call_syntax.py",
        "if failed > MOST_BROKEN:",
        "if failed:",
    ),
    REPLIES(
        "the time that broken calls take is not bounded",
        "engines/replies/call_syntax.py",
        "if failed > MOST_BROKEN:",
        "if failed < 0:",
    ),
    REPLIES(
        "a call without its end may lack arguments",
        "engines/replies/call_syntax.py",
        'if self.kind != "pairs" and not text[place:].strip()',
        "if not text[place:].strip()",
    ),
    REPLIES(
        "a text that the schema allows becomes a number",
        "engines/replies/call_syntax.py",
        'if "string" not in types or _names(value)',
        "if types or _names(value)",
    ),
    REPLIES(
        "NaN becomes an argument",
        "engines/replies/call_syntax.py",
        "json.dumps(read(inner), allow_nan=False)",
        "json.dumps(read(inner))",
    ),
    REPLIES(
        "a number in quotes makes a call text",
        "engines/replies/call_syntax.py",
        'if self.kind == "pairs":\n            texts',
        'if self.kind == "json":\n            texts',
    ),
    REPLIES(
        "code that is said to a tool is a call",
        "engines/replies/harmony.py",
        "whole = self.end == CALLS and name == self.name",
        "whole = self.end == CALLS",
        suites=("tests/io/engines/vllm/test_harmony.py",),
    ),
    STREAMS(
        "a call in reasoning is streamed as reasoning",
        "dialects/stream_text.py",
        "(*THOUGHTS, *openings, *self._calls, *MARKERS)",
        "(*THOUGHTS, *openings, *MARKERS)",
    ),
    STREAMS(
        "a second opening of reasoning is streamed as reasoning",
        "dialects/stream_text.py",
        "openings = () if self.reasoning else THINKS",
        "openings = ()",
    ),
    STREAMS(
        "white space before a call is streamed as content",
        "dialects/stream_text.py",
        "if self.tools and not self.content and not certain.strip():",
        "if False:",
    ),
)
"""Each reads a turn as no engine does, or loses a part of it."""
