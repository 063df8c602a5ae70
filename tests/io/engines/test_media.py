"""Engines that take no media beside ids say so by name, before anything is sent."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.recorded_images import PAD, medium
from tito_io.engines.dynamo import Dynamo
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.miles import Miles
from tito_io.engines.protocol import Sampling
from tito_io.engines.wrapper import EngineWrapper

pytestmark = pytest.mark.anyio


def unasked(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError(f"{request.url} was asked")


@pytest.mark.parametrize("kind", [Dynamo, Miles])
async def test_other_engines_are_refused_by_name(kind: Any) -> None:
    engine = kind("http://mock", transport=httpx2.MockTransport(unasked))
    for one in (engine, EngineWrapper(engine)):
        with pytest.raises(MediaUnsupportedError, match=f"{engine.name} takes no media beside ids"):
            await one.from_ids_with_media([PAD], [medium("a", 0)], Sampling(max_tokens=1))
    await engine.aclose()
