"""Where the integration goes in: verl's table of Continuous Token builders, and the merge of its loops."""

from __future__ import annotations

import ast
from dataclasses import fields
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from verl.utils.tokenizer import continuous_token_wiring as wiring
from verl.utils.tokenizer.continuous_token import (
    ContinuousTokenBuilder,
    MergeResult,
    VLContinuousTokenMixin,
)

from tito_io.integrations import verl as integration

MOVED = f"verl {version('verl')}: moved"


def source(name: str) -> str:
    """Return the text of a file beside verl's agent loop, which imports servers."""
    spec = find_spec("verl")
    assert spec is not None
    assert spec.origin is not None
    return (Path(spec.origin).parent / "experimental" / "agent_loop" / name).read_text()


def test_the_table_of_builders_is_where_builders_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    table = wiring._CONTINUOUS_TOKEN_BUILDER_REGISTRY
    monkeypatch.setitem(table, wiring.ContinuousTokenModelFamily.DEFAULT, MergeResult)
    assert wiring.get_continuous_token_builder_class("default") is MergeResult, MOVED


def test_builders_are_made_of_a_tokenizer_and_template_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Any, ...]] = []

    class Builder(ContinuousTokenBuilder):
        def __init__(self, *args: Any, **options: Any) -> None:
            made.append((args, options))

    monkeypatch.setitem(
        wiring._CONTINUOUS_TOKEN_BUILDER_REGISTRY, wiring.ContinuousTokenModelFamily.DEFAULT, Builder
    )
    wiring.create_continuous_token_builder(
        "tokenizer", hf_model_type="unheard_of", chat_template_kwargs={"a": 1}
    )
    assert made == [(("tokenizer",), {"chat_template_kwargs": {"a": 1}})], MOVED


TAKEN = [
    (
        ContinuousTokenBuilder,
        "merge_context_tokens",
        "previous_messages updated_messages runtime_token_ids tools",
    ),
    (VLContinuousTokenMixin, "__init__", "tokenizer processor mm_processor_kwargs kwargs"),
    (VLContinuousTokenMixin, "build_initial_tokens", "messages tools images videos audios mm_inputs_out"),
]


@pytest.mark.parametrize(("owner", "name", "taken"), TAKEN)
def test_a_method_has_its_arguments(owner: Any, name: str, taken: str) -> None:
    found = [one for one in signature(getattr(owner, name)).parameters if one != "self"]
    assert found == taken.split(), MOVED


def test_the_merge_has_its_result() -> None:
    assert [one.name for one in fields(MergeResult)] == [
        *("token_ids", "appended_token_count", "kind", "inserted_token_ids", "removed_prefix_token_count")
    ], MOVED
    assert MergeResult(token_ids=[], appended_token_count=0).kind == "context", MOVED


@pytest.mark.parametrize(
    "name", ["build_initial_tokens", "merge_assistant_tokens", "align_response_metadata"]
)
def test_what_stays_verls_own_is_there(name: str) -> None:
    assert getattr(integration.TitoContinuousTokenBuilder, name) is getattr(ContinuousTokenBuilder, name), (
        MOVED
    )
    assert "_assert_append_only" in vars(ContinuousTokenBuilder), MOVED


def test_the_agent_loop_merges_by_this_function_in_threads() -> None:
    calls = [node for node in ast.walk(ast.parse(source("agent_loop.py"))) if isinstance(node, ast.Call)]
    by_name = {ast.unparse(one.func): one for one in calls}
    merge = by_name["self.continuous_token_builder.merge_context_tokens"]
    assert [ast.unparse(one) for one in merge.args] == [
        *("previous_messages", "updated_messages", "runtime_token_ids")
    ], MOVED
    assert [one.arg for one in merge.keywords] == ["tools"], MOVED
    assert "self.loop.run_in_executor" in by_name, MOVED
    assert "create_continuous_token_builder" in by_name, MOVED


def test_builders_for_images_do_not_merge_by_themselves() -> None:
    assert "merge_context_tokens" not in vars(VLContinuousTokenMixin), MOVED


def test_the_loop_with_tools_puts_new_images_into_their_messages() -> None:
    assert 'content.append({"type": "image", "image": img})' in source("tool_agent_loop.py"), MOVED
