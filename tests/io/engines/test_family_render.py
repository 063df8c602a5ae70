"""Families of engines that render in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tito_core import InputError
from tito_io.engines.in_process import TransformersModel
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.lmdeploy import LMDeploy
from tito_io.engines.tensorrt_llm import TensorRTLLM


@pytest.mark.parametrize("family", ["MODEL", Path("MODEL")])
@pytest.mark.parametrize("kind", [LlamaCpp, LMDeploy, TensorRTLLM])
def test_a_folders_name_in_place_of_a_family_is_named(kind: Any, family: Any) -> None:
    with pytest.raises(InputError, match=r"family is 'MODEL': give a family, such as Family.load\('MODEL'\)"):
        kind("http://127.0.0.1:8000", family=family)


def test_objects_in_this_process_need_a_family_too() -> None:
    with pytest.raises(InputError, match="family is 'MODEL': give a family"):
        TransformersModel(object(), "MODEL")  # type: ignore[arg-type]  # as a caller without types may
