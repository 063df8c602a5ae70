"""Read outputs with the parsers of an engine's package, as its chat route does; runs in its environment.

`python record.py vllm|sglang ASKED ANSWERS`: ASKED is a JSON file of `recorded.asked`. ANSWERS gets JSON
lines: format, name of the output, and what was read: content, reasoning, calls with arguments; or an error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

HARMONY_CALL = 200012
"""The only stop token whose text SGLang keeps."""
Answer = tuple[str | None, str | None, list[tuple[str | None, str]]]
"""Reasoning, content and calls."""
Reader = Callable[[list[int], list[int]], Answer]
"""Reads ids, and the stop token after them."""


@cache
def _vllm_tokenizer(folder: str) -> Any:
    return import_module("vllm.tokenizers").get_tokenizer(folder)


@cache
def _tokenizer(folder: str) -> Any:
    return import_module("transformers").AutoTokenizer.from_pretrained(folder)


def vllm(asked: Mapping[str, Any], tools: Any) -> Reader:
    """Return a reader as vLLM's chat route makes it (`chat_completion/serving.py`, 0.32)."""
    protocol = import_module("vllm.entrypoints.openai.chat_completion.protocol")
    tokenizer = copy(_vllm_tokenizer(asked["folder"]))
    if asked["lacks"]:
        vocabulary = {key: one for key, one in tokenizer.get_vocab().items() if key not in asked["lacks"]}
        tokenizer.get_vocab = lambda: vocabulary
    calls, reasoning = asked["parsers"]
    chosen = import_module("vllm.parser").ParserManager.get_parser(
        tool_parser_name=calls,
        reasoning_parser_name=reasoning,
        enable_auto_tools=True,
        is_harmony=calls == "openai",
        tokenizer=tokenizer,
    )

    def read(ids: list[int], stop: list[int]) -> Answer:
        messages = [{"role": "user", "content": "?"}]
        request = protocol.ChatCompletionRequest(messages=messages, tools=tools)
        parser = chosen(tokenizer, request.tools, chat_template_kwargs=asked["arguments"], model_config=None)
        request = parser.adjust_request(request)
        parser.set_prompt_token_ids(asked["prompt"])
        text = tokenizer.decode(
            ids, skip_special_tokens=request.skip_special_tokens, clean_up_tokenization_spaces=False
        )
        sampled = ids + stop
        found = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=sampled)
        return found[0], found[1], [(call.name, call.arguments) for call in found[2] or ()]

    return read


def sglang(asked: Mapping[str, Any], tools: Any) -> Reader:
    """Return a reader as SGLang's chat route makes it (`serving_chat.py`, 0.5.23)."""
    protocol = import_module("sglang.srt.entrypoints.openai.protocol")
    route = import_module("sglang.srt.entrypoints.openai.serving_chat").OpenAIServingChat
    reasoning = import_module("sglang.srt.parser.reasoning_parser").ReasoningParser
    detect = import_module("sglang.srt.parser.template_detection").detect_reasoning_pattern
    tokenizer = _tokenizer(asked["folder"])
    messages = [{"role": "user", "content": "?"}]
    request = protocol.ChatCompletionRequest(
        model="m", messages=messages, tools=tools, chat_template_kwargs=asked["arguments"]
    )
    server = object.__new__(route)
    server.tool_call_parser, server.reasoning_parser = asked["parsers"]
    server.tokenizer_manager = SimpleNamespace(tokenizer=tokenizer)
    force, toggle = detect(asked["template"])
    server.template_manager = SimpleNamespace(force_reasoning=force, reasoning_config=toggle)
    named = {"model_type": server.reasoning_parser, "tokenizer": tokenizer}
    server._reasoning_detector = reasoning(**named).detector if server.reasoning_parser else None

    def read(ids: list[int], stop: list[int]) -> Answer:
        kept = stop if server.tool_call_parser == "gpt-oss" else []  # `detokenizer_manager.py`
        kept = [index for index in kept if index == HARMONY_CALL]
        thought, text = None, tokenizer.decode(ids + kept, skip_special_tokens=False)
        if server.reasoning_parser:
            forced = force or server._get_reasoning_from_request(request)
            parser = reasoning(
                **named,
                stream_reasoning=False,
                force_reasoning=forced,
                request=request,
                tool_call_parser_active=True,
            )
            thought, text = parser.parse_non_stream(text)
        finish = {"type": "stop" if stop else "length"}
        calls, text, _ = server._process_tool_calls(text, request.tools, finish, request.tool_choice, 0)
        return thought, text, [(call.function.name, call.function.arguments) for call in calls or ()]

    return read


def main(engine: str, asked: str, answers: str) -> None:
    """Write what the engine's parsers read."""
    given = json.loads(Path(asked).read_text(encoding="utf-8"))
    with Path(answers).open("w", encoding="utf-8") as file:
        for name, one in given["formats"].items():
            read = {"vllm": vllm, "sglang": sglang}[engine](one, given["tools"])
            for case, ids, stop in one["outputs"]:
                try:
                    reasoning, content, calls = read(ids, stop)
                    answer: dict[str, Any] = {"content": content, "reasoning": reasoning, "calls": calls}
                except Exception as error:  # noqa: BLE001  # the server answers with an error
                    answer = {"error": type(error).__name__}
                kept = {key: value for key, value in answer.items() if value}
                file.write(json.dumps([name, case, kept], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
