"""What SGLang itself makes of chat requests, without an engine: run in SGLang's environment.

    python sglang_oracle.py MODEL_FOLDER < questions > answers

Questions and answers are those of `vllm_oracle.py`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "SGLANG_USE_CPU_ENGINE": "1", "TORCHDYNAMO_DISABLE": "1"}

from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from sglang.srt.entrypoints.openai.serving_chat import OpenAIServingChat
from sglang.srt.parser.jinja_template_utils import (
    detect_jinja_template_content_format,
    jinja_template_may_reorder_tool_results,
)
from transformers import AutoTokenizer


class Tokenizer:
    """Keeps what its chat template was given, and the text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.seen: dict[str, Any] = {}
        self.special: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        options.pop("tokenize", None)
        self.seen = {"conversation": json.loads(json.dumps(messages)), "tools": options.get("tools")}
        options = {**options, **self.special, "chat_template": self.chat_template}
        text = self.tokenizer.apply_chat_template(messages, tokenize=False, **options)
        self.seen["text"] = text
        return text

    def encode(self, *_: Any, **__: Any) -> list[int]:
        return [0]


class Oracle:
    """Runs `OpenAIServingChat._apply_jinja_template` on a server of which only that part exists."""

    def __init__(self, model: str) -> None:
        self.tokenizer = Tokenizer(AutoTokenizer.from_pretrained(model))
        self.serving = OpenAIServingChat.__new__(OpenAIServingChat)
        template = SimpleNamespace(
            chat_template_name=None,
            python_chat_template=None,
            reasoning_config=None,
            jinja_template_content_format="string",
            jinja_template_may_reorder_tool_results=False,
        )
        self.serving.__dict__ |= {
            "tokenizer_manager": SimpleNamespace(
                tokenizer=self.tokenizer,
                served_model_name="m",
                model_config=SimpleNamespace(is_multimodal=False),
            ),
            "template_manager": template,
            "_encoding_adapter": None,
            "chat_encoding_spec": None,
            "default_chat_template_kwargs": {},
            "is_minimax_m3": False,
            "is_gpt_oss": False,
            "is_gemma4": False,
            "tool_call_parser": None,
            "reasoning_parser": None,
            "_tokenizer_auto_adds_specials": False,
            "_prompt_text_round_trip_is_lossy": False,
            "_reasoning_detector": None,
        }

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the conversation and the text, or the error of the request."""
        source, tools = question["template"], question.get("tools")
        manager = self.serving.template_manager
        manager.jinja_template_content_format = detect_jinja_template_content_format(source)
        manager.jinja_template_may_reorder_tool_results = jinja_template_may_reorder_tool_results(source)
        self.tokenizer.tokenizer.chat_template = source
        self.tokenizer.special, self.tokenizer.seen = question.get("variables", {}), {}
        form = manager.jinja_template_content_format
        body = {"model": "m", "messages": question["messages"], **({"tools": tools} if tools else {})}
        try:
            request = ChatCompletionRequest.model_validate(body)
            given = None if not request.tools else [one.model_dump() for one in request.tools]
            if refusal := self.serving._validate_media_content(request):
                return {"form": form, "error": refusal}
            self.serving._apply_jinja_template(request, given, is_multimodal=False)
        except Exception as error:  # noqa: BLE001  # whatever the server answers 400 to
            return {"form": form, **self.tokenizer.seen, "error": f"{type(error).__name__}: {error}"[:2000]}
        return {"form": form, **self.tokenizer.seen}


def _say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer questions until there are no more."""
    logging.disable(logging.CRITICAL)
    oracle = Oracle(sys.argv[1])
    _say({"ready": True})
    for line in sys.stdin:
        _say(oracle.answer(json.loads(line)))


if __name__ == "__main__":
    main()
