"""What vLLM itself makes of chat requests, without an engine: run in vLLM's environment.

    python vllm_oracle.py MODEL_FOLDER < questions > answers

Questions and answers are JSON objects, one a line. A question has `template`, `messages`, and may have
`tools` and `variables`. The answer has the `conversation` that the template gets and its `text`, or an
`error`.
"""

from __future__ import annotations

import json
import logging
import os
import sys
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
        """Return the conversation and the text, or the error of the request."""
        template, tools = question["template"], question.get("tools")
        body = {"model": "m", "messages": question["messages"], "chat_template": template}
        try:
            request = ChatCompletionRequest.model_validate({**body, **({"tools": tools} if tools else {})})
            given = None if request.tools is None else [one.model_dump() for one in request.tools]
            form = hf._detect_content_format(template, default="string")
            seen, _, _ = parse_chat_messages(request.messages, self.config, form)
            answer = {"form": form, "conversation": json.loads(json.dumps(seen)), "tools": given}
        except Exception as error:  # noqa: BLE001  # whatever the server answers 400 to
            return {"error": f"{type(error).__name__}: {error}"[:2000]}
        variables = {**question.get("variables", {}), "add_generation_prompt": True}
        try:
            text = hf.safe_apply_chat_template(
                self.config,
                self.tokenizer,
                seen,
                tools=given,
                chat_template=template,
                tokenize=False,
                **variables,
            )
        except Exception as error:  # noqa: BLE001  # the same
            return {**answer, "error": f"{type(error).__name__}: {error}"[:2000]}
        return {**answer, "text": text}


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
