"""What SGLang itself makes of chat requests, without an engine; `oracle_process.py` asks it."""

from __future__ import annotations

import os
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
    """Keeps the text that its chat template wrote, and gives it special tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.text = ""
        self.special: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        options.pop("tokenize", None)
        options = {**options, **self.special, "chat_template": self.chat_template}
        self.text = self.tokenizer.apply_chat_template(messages, tokenize=False, **options)
        return self.text

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
        """Return the text, or the error of the request."""
        source, tools = question["template"], question.get("tools")
        manager = self.serving.template_manager
        manager.jinja_template_content_format = detect_jinja_template_content_format(source)
        manager.jinja_template_may_reorder_tool_results = jinja_template_may_reorder_tool_results(source)
        self.tokenizer.tokenizer.chat_template = source
        self.tokenizer.special = question.get("variables", {})
        body = {"model": "m", "messages": question["messages"], **({"tools": tools} if tools else {})}
        try:
            request = ChatCompletionRequest.model_validate(body)
            given = None if not request.tools else [one.model_dump() for one in request.tools]
            if refusal := self.serving._validate_media_content(request):
                return {"error": refusal}
            self.serving._apply_jinja_template(request, given, is_multimodal=False)
        except Exception as error:  # noqa: BLE001  # whatever the server answers 400 to
            return {"error": f"{type(error).__name__}: {error}"[:2000]}
        return {"text": self.tokenizer.text}
