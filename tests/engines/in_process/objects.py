"""The objects that trainers hold, made for a CPU, and what differs between them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

from tests.engines.talk import CALL_PATTERN, marker_id
from tito_io.engines.in_process import MlxModel, SglangEngine, TransformersModel, VllmAsync, VllmLLM
from tito_io.families import Family

CONTEXT = 8192
DTYPE = os.environ.get("TITO_DTYPE", "float32")
"""The type of the weights, for those that can choose it."""
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city":  "Paris"}}\n</tool_call>'
TAGS = ("<tool_call>", "</tool_call>")


@attrs.frozen(kw_only=True)
class Subject:
    """One engine.

    Attributes:
        make: Makes the object of a model folder.
        end: Ends the object.
        engine: Makes the engine of an object.
        call: Returns extra keys with which a turn is a tool call.
        only: Returns extra keys with which nothing but some ids is sampled.
        endless: Extra keys with which no id ends a turn.
        seeds: Whether it samples with seeds.
        constrains: Whether it takes grammars.
        processed: Whether its log-probabilities are those after temperature.
        caches: Whether it keeps prompts between turns.
    """

    make: Callable[[Path], Any]
    engine: Callable[[Any, Family], Any]
    call: Callable[[Family], dict[str, Any]]
    only: Callable[[Sequence[int]], dict[str, Any]]
    endless: Mapping[str, Any]
    end: Callable[[Any], object] = lambda _: None
    seeds: bool = True
    processed: bool = False
    constrains: bool = True
    caches: bool = True


def _vllm_options(folder: Path) -> dict[str, Any]:
    return {
        "model": str(folder),
        "dtype": DTYPE,
        "enforce_eager": True,
        "max_num_seqs": 8,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": CONTEXT,
        "kv_cache_memory_bytes": int(os.environ.get("TITO_CACHE_BYTES", "67108864")),
    }


def _llm(folder: Path) -> Any:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    return import_module("vllm").LLM(**_vllm_options(folder))


def _async_llm(folder: Path) -> Any:
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    vllm = import_module("vllm")
    args = vllm.AsyncEngineArgs(**_vllm_options(folder))
    return import_module("vllm.v1.engine.async_llm").AsyncLLM.from_engine_args(args)


def _sglang(folder: Path) -> Any:
    return import_module("sglang").Engine(
        model_path=str(folder),
        device="cpu",
        dtype="float32",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        disable_cuda_graph=True,
        disable_overlap_schedule=True,
        context_length=CONTEXT,
        max_total_tokens=32768,
        max_running_requests=8,
        skip_server_warmup=True,
    )


def _transformers(folder: Path) -> Any:
    torch, transformers = import_module("torch"), import_module("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, DTYPE)).eval()


def _mlx(folder: Path) -> Any:
    model, _ = import_module("mlx_lm").load(str(folder))
    return model


def _bias(family: Family) -> dict[str, float]:
    return {str(marker_id(family, tag)): 100.0 for tag in TAGS}


def _vllm_call(family: Family) -> dict[str, Any]:
    return {"structured_outputs": {"regex": CALL_PATTERN}, "logit_bias": _bias(family)}


def _sglang_call(family: Family) -> dict[str, Any]:
    return {"regex": CALL_PATTERN, "logit_bias": _bias(family)}


def masked(scores: Any, kept: Callable[[Any], Any]) -> Any:
    """Return scores of PyTorch or MLX that leave some ids alone."""
    core = import_module("mlx.core" if type(scores).__module__.startswith("mlx") else "torch")
    return core.where(kept(core.arange(scores.shape[-1])), scores, -float("inf"))


class Script:
    """A logits processor that leaves one id at each step."""

    def __init__(self, ids: Sequence[int]) -> None:
        """Store the ids; the last one is repeated."""
        self.ids = list(ids)
        self.start: int | None = None

    def __call__(self, tokens: Any, scores: Any) -> Any:
        """Return scores that leave the next id alone."""
        if self.start is None:
            self.start = tokens.shape[-1]
        index = self.ids[min(tokens.shape[-1] - self.start, len(self.ids) - 1)]
        return masked(scores, lambda ids: ids == index)


def without_markers(_: Any, scores: Any) -> Any:
    """Return scores that leave no id which ends a turn, as a logits processor."""
    return masked(scores, lambda ids: (ids >= 3) & (ids < 3063))


def _run_here(make: Callable[[Path], Any], engine: Callable[..., Any], processors: str) -> Subject:
    """Return an engine whose object is a model; `processors` names its key for logits processors."""
    return Subject(
        make=make,
        engine=engine,
        call=lambda family: {processors: [Script([*family.encode(CALL), family.stop_ids[0]])]},
        only=lambda ids: {processors: [Script(ids)]},
        endless={processors: [without_markers]},
        constrains=False,
        caches=False,
    )


def _vllm_only(ids: Sequence[int]) -> dict[str, Any]:
    return {"allowed_token_ids": list(ids)}


OBJECTS: Mapping[str, Subject] = {
    "vllm-llm": Subject(
        make=_llm, engine=VllmLLM, call=_vllm_call, only=_vllm_only, endless={"ignore_eos": True}
    ),
    "vllm-async": Subject(
        make=_async_llm,
        engine=VllmAsync,
        call=_vllm_call,
        only=_vllm_only,
        endless={"ignore_eos": True},
        end=lambda made: made.shutdown(),
    ),
    "sglang-engine": Subject(
        make=_sglang,
        engine=SglangEngine,
        call=_sglang_call,
        only=lambda ids: {"logit_bias": {str(index): 100.0 for index in ids}},
        endless={"ignore_eos": True},
        end=lambda made: made.shutdown(),
        seeds=False,
        processed=True,
    ),
    "transformers": _run_here(_transformers, TransformersModel, "logits_processor"),
    "mlx": _run_here(_mlx, MlxModel, "logits_processors"),
}
