"""Faults of turns between an engine and training rows: which values belong to a turn, and which are kept."""

from __future__ import annotations

from functools import partial

from tests.faults.fault import Fault

TURNS = partial(Fault, package="tito_io", plugins=("anyio.pytest_plugin",))
CLIENT = partial(TURNS, suites=("tests/io/client/test_token_client.py",))
CALLS = partial(
    TURNS, file="integrations/model_calls.py", suites=("tests/io/integrations/test_model_calls.py",)
)
ATTRIBUTION = partial(
    TURNS, file="integrations/attribution.py", suites=("tests/io/integrations/test_attribution.py",)
)
DIALECTS = partial(TURNS, suites=("tests/io/dialects/test_round_trips.py",))
SCORES = partial(TURNS, suites=("tests/io/engines/test_score_laws.py",))
ROWS = partial(TURNS, suites=("tests/io/samples/test_rows.py",))
FORMS = partial(TURNS, suites=("tests/io/samples/test_written_forms.py",))

FAULTS = (
    CLIENT(
        "ids count as kept by the engine wherever there was a turn before",
        "client/turn_sampler.py",
        "earlier is not None and step.prompt_ids.starts_with(earlier.ids)\n",
        "earlier is not None\n",
    ),
    CLIENT(
        "only the first of several turns must keep to the constraint",
        "client/turn.py",
        "    for one in (reply, *reply.siblings):\n        if sampling.constraint",
        "    for one in (reply,):\n        if sampling.constraint",
    ),
    TURNS(
        "a turn after images need not keep to the constraint",
        "client/turn_sampler.py",
        "return seen, await self._checked(reply, request.sampling)",
        "return seen, reply",
        suites=("tests/io/client/test_images.py",),
    ),
    TURNS(
        "only notices of the first of several turns are counted",
        "engines/protocol.py",
        "(Counter(one.notices) for one in (self, *self.siblings))",
        "(Counter(one.notices) for one in (self,))",
        suites=("tests/io/engines/test_speculation.py",),
    ),
    TURNS(
        "cases that another conversation learned meanwhile are lost",
        "client/certificates.py",
        "self.profile = profile if known is None else known.then(*new)",
        "self.profile = profile",
        suites=("tests/io/client/test_certificates.py",),
    ),
    TURNS(
        "conversations that meet an unknown case at once each certify it",
        "client/certificates.py",
        "case is None or self.knows(case) else",
        "case is None or case else",
        suites=("tests/io/client/test_certificates.py",),
    ),
    TURNS(
        "conversations that begin at once do not share what they learn",
        "client/certificates.py",
        "self._known.setdefault(key, begun)  # another conversation may have been faster",
        "self._known[key] = begun",
        suites=("tests/io/client/test_certificates.py",),
    ),
    TURNS(
        "cases that a stored profile had are lost where it learns others",
        "families/stored_profile.py",
        "self.profile = self.profile.then(*profile.cases)",
        "self.profile = profile",
        suites=("tests/io/families/test_profile_cache.py",),
    ),
    CALLS(
        "a stream is closed before its turn is over at the engine",
        right="            await asyncio.gather(turning, return_exceptions=True)\n",
        wrong="",
    ),
    CALLS(
        "a turn is kept after the last events of its stream",
        right="""            self._keep(turn, stamp)
            for event in rest:
                yield event
""",
        wrong="""            for event in rest:
                yield event
            self._keep(turn, stamp)
""",
    ),
    ATTRIBUTION(
        "a stop that a model goes on after ends its turn",
        right="found = inside.pop() if inside",
        wrong="found = inside.pop(0) if inside",
    ),
    ATTRIBUTION(
        "the last of several stops in a row ends a turn",
        right="        while inside and inside[-1][1] == found[0]:\n            found = inside.pop()\n",
        wrong="",
    ),
    DIALECTS(
        "a log-probability of 0 is missing for Google's clients",
        "dialects/google/answer.py",
        "MISSING_LOGPROB if logprob is None else logprob",
        "logprob or MISSING_LOGPROB",
    ),
    DIALECTS(
        "a log-probability of 0 is missing for OpenAI's clients",
        "dialects/wire.py",
        "MISSING_LOGPROB if logprob is None else logprob",
        "logprob or MISSING_LOGPROB",
    ),
    TURNS(
        "a turn of Dynamo that calls and was not cut ends as one that calls nothing",
        "engines/dynamo/replies.py",
        'return reason if engine_reason == FINISHES["stop"] else engine_reason',
        "return engine_reason",
        suites=("tests/io/engines/dynamo/test_traps.py",),
    ),
    TURNS(
        "a turn of Miles that calls and was not cut ends as one that calls nothing",
        "engines/miles/replies.py",
        'kind in ("length", "abort")',
        'kind in ("length", "abort", "stop")',
        suites=("tests/io/engines/miles/test_session.py",),
    ),
    TURNS(
        "of several records of one id the oldest is taken",
        "engines/miles/replies.py",
        "for one in reversed(self.records)",
        "for one in self.records",
        suites=("tests/io/engines/miles/test_session.py",),
    ),
    SCORES(
        "SGLang's scores are those of the ids before",
        "engines/sglang/replies.py",
        '"input_token_logprobs", list)[1:]\n',
        '"input_token_logprobs", list)\n    entries = [[a[0], b[1]] for a, b in zip(entries, entries[1:])]\n',
    ),
    SCORES(
        "SGLang is asked for scores from one id too far on",
        "engines/sglang/requests.py",
        '"logprob_start_len": start - 1',
        '"logprob_start_len": start',
    ),
    SCORES(
        "vLLM's scores are those of the ids before",
        "engines/vllm/replies.py",
        "zip(entries[start:], sent[start:], strict=True)",
        "zip([None, *entries][start:], sent[start:], strict=False)",
    ),
    SCORES(
        "the scores of transformers are those of the ids after",
        "engines/in_process/transformers_model.py",
        "logits[0, start - 1 : -1]",
        "logits[0, start:]",
    ),
    ROWS(
        "an infinite reward is null in JSON lines and in safetensors",
        "samples/entry.py",
        "(row.reward, *logprobs)",
        "logprobs",
    ),
    ROWS(
        "an infinite log-probability is null in JSON lines and in safetensors",
        "samples/entry.py",
        "(row.reward, *logprobs)",
        "(row.reward,)",
    ),
    ROWS(
        "a reward is not looked at before it becomes JSON in safetensors",
        "samples/tensors.py",
        "        check_finite(row, row.logprobs if logprobs is None else ())\n",
        "",
    ),
    FORMS(
        "an infinite reward is null in stored calls",
        "samples/forms/tito.py",
        "(call.reward, *(call.step.logprobs or ()))",
        "call.step.logprobs or ()",
    ),
    FORMS(
        "an infinite log-probability is null in stored calls",
        "samples/forms/tito.py",
        "(call.reward, *(call.step.logprobs or ()))",
        "(call.reward,)",
    ),
)
"""Each trains with ids, values or ends that are another turn's, or loses a turn that was sampled."""
