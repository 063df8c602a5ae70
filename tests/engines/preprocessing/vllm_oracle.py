"""What vLLM itself makes of chat requests, without an engine; `oracle_process.py` asks it."""

from __future__ import annotations

import os
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "CRITICAL"}
os.environ |= {"TORCHDYNAMO_DISABLE": "1", "DO_NOT_TRACK": "1"}

from vllm.config import ModelConfig
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers import hf
from vllm.renderers.chat_utils import parse_chat_messages
from vllm.tokenizers import cached_tokenizer_from_config


class Oracle:
    """Does what `HfRenderer.render_messages` does with a request, up to the text."""

    def __init__(self, model: str) -> None:
        self.config = ModelConfig(model=model)
        self.tokenizer = cached_tokenizer_from_config(self.config)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the text, or the error of the request."""
        template, tools = question["template"], question.get("tools")
        body = {"model": "m", "messages": question["messages"], "chat_template": template}
        try:
            request = ChatCompletionRequest.model_validate({**body, **({"tools": tools} if tools else {})})
            given = None if request.tools is None else [one.model_dump() for one in request.tools]
            form = hf._detect_content_format(template, default="string")
            seen, _, _ = parse_chat_messages(request.messages, self.config, form)
            variables = {**question.get("variables", {}), "add_generation_prompt": True}
            text = hf.safe_apply_chat_template(
                self.config,
                self.tokenizer,
                seen,
                tools=given,
                chat_template=template,
                tokenize=False,
                **variables,
            )
        except Exception as error:  # noqa: BLE001  # whatever the server answers 400 to
            return {"error": f"{type(error).__name__}: {error}"[:2000]}
        return {"text": text}
