"""Families of engines that render in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tito_core import InputError
from tito_io.embedded import write_family
from tito_io.engines.dynamo import Dynamo
from tito_io.engines.in_process import TransformersModel
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.lmdeploy import LMDeploy
from tito_io.engines.protocol import Rendering
from tito_io.engines.tensorrt_llm import TensorRTLLM
from tito_io.families.family import Family


@pytest.mark.parametrize("family", ["MODEL", Path("MODEL")])
@pytest.mark.parametrize("kind", [LlamaCpp, LMDeploy, TensorRTLLM])
def test_a_folders_name_in_place_of_a_family_is_named(kind: Any, family: Any) -> None:
    with pytest.raises(InputError, match=r"family is 'MODEL': give a family, such as Family.load\('MODEL'\)"):
        kind("http://127.0.0.1:8000", family=family)


def test_objects_in_this_process_need_a_family_too() -> None:
    with pytest.raises(InputError, match="family is 'MODEL': give a family"):
        TransformersModel(object(), "MODEL")  # type: ignore[arg-type]  # as a caller without types may


def calling(arguments: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


QUOTING = (
    "{% for m in messages %}{% for c in m.tool_calls or () %}{{ c.function.arguments | tojson }}{% endfor %}"
    "{% endfor %}"
)
"""A template that quotes the text of arguments once more, as those of Llama 3 and Kimi-K2 do."""


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [Dynamo, LlamaCpp, LMDeploy, TensorRTLLM])
async def test_arguments_that_come_as_text_are_objects_for_the_template(kind: Any, tmp_path: Path) -> None:
    folder = write_family(tmp_path / "family")
    (folder / "chat_template.jinja").write_text(QUOTING)
    family = Family.load(folder)
    async with kind("http://127.0.0.1:9", family=family) as engine:
        ids = await engine.render([calling('{"x": 3}')], Rendering(), add_generation_prompt=False)
    assert family.decode(ids) == '{"x": 3}'
