"""The engines of the command line as rows, which `--help` shows without importing adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class NamedEngine(NamedTuple):
    """An engine that a command line names; no `attrs` class, whose import --help would wait for.

    Attributes:
        adapter: The module of its adapter in this package, and the class in it; empty for one made otherwise.
        words: What it is.
        family: Why it needs the model's folder; empty where it takes one and needs none, None where it takes
            none.
        masks: The route that has sampling masks, where it is not the adapter's default.
    """

    adapter: str
    words: str
    family: str | None = None
    masks: str | None = None


NO_RENDERER = "it has no route that renders"
ENGINES: Mapping[str, NamedEngine] = {
    "embedded": NamedEngine("", "a seeded sampler of random text, without a server"),
    "vllm": NamedEngine("vllm:VLLM", "vLLM's OpenAI-compatible server", masks="generate"),
    "sglang": NamedEngine("sglang:SGLang", "SGLang's server", family=""),
    "dynamo": NamedEngine("dynamo:Dynamo", "NVIDIA Dynamo's frontend; needs --family", NO_RENDERER),
    "llamacpp": NamedEngine(
        "llamacpp:LlamaCpp",
        "llama.cpp's server; needs --family or --gguf",
        "the server's own renderer and tokenizer write other ids than the model's",
    ),
    "lmdeploy": NamedEngine("lmdeploy:LMDeploy", "LMDeploy's server; needs --family", NO_RENDERER),
    "tensorrt-llm": NamedEngine(
        "tensorrt_llm:TensorRTLLM", "TensorRT-LLM's server (trtllm-serve); needs --family", NO_RENDERER
    ),
    "miles": NamedEngine("", "a session server of Miles, which keeps the ids itself"),
}
