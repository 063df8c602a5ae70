"""AReaL: concatenated prompts for its OpenAI client, as the chat template writes them.

Relies on AReaL 1.0.4: `areal/experimental/openai/client.py`, where both clients call the module's function
`concat_prompt_token_ids_with_parent` if `chat_template_type` is "concat". No option replaces it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import define, field

from tito_core import InputError, Refusal
from tito_core.checks import require
from tito_io.integrations.arguments import check_on_refusal
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.shared_prompts import SharedPrompts

SEAM = "concat_prompt_token_ids_with_parent"
TAKES = ("message_list", "parent", "tokenizer", "tools", "extra_body")
SEAMS: Seams = {f"areal.experimental.openai.client:{SEAM}": TAKES}
required("areal", SEAMS)

from areal.experimental.openai import client


@define(eq=False)
class ConcatenatedPrompts:
    """Builds the prompt of a request from the ids of the interaction before it.

    All ids of that interaction come back unchanged, so that AReaL's loss mask, which it keeps by position,
    falls on what was sampled. A first request is rendered by AReaL.

    Attributes:
        prompts: What builds the prompts.

    Raises:
        InputError: `prompts` is something else, or renders anew after a refusal; the loss mask would then
            fall on other ids.
    """

    prompts: SharedPrompts = field(factory=SharedPrompts)
    _own: Any = field(default=getattr(client, SEAM), init=False, repr=False)

    @prompts.validator
    def _check_prompts(self, _attribute: Any, prompts: SharedPrompts) -> None:
        require(prompts, SharedPrompts, "prompts", "SharedPrompts(), perhaps with stop_ids")
        check_on_refusal(prompts.on_refusal, ("raise",))

    @property
    def built(self) -> Counter[str]:
        """How many prompts were built from ids."""
        return self.prompts.built

    @property
    def refused(self) -> Counter[str]:
        """How many prompts were refused, by the name of the reason."""
        return self.prompts.refused

    def install(self) -> None:
        """Put this in the place of AReaL's function, for all clients of this process.

        Raises:
            InputError: Another one is installed.
        """
        if getattr(client, SEAM) not in (self, self._own):
            raise InputError("another ConcatenatedPrompts is installed: call its `uninstall` first")
        setattr(client, SEAM, self)

    def uninstall(self) -> None:
        """Put AReaL's function back."""
        setattr(client, SEAM, self._own)

    def __call__(
        self,
        message_list: list[dict[str, Any]],
        parent: Any,
        tokenizer: Any,
        tools: Iterable[Mapping[str, Any]] | None = None,
        extra_body: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the ids of the next prompt; arguments and result are those of AReaL's function.

        Raises:
            RefusedError: The prompt cannot be built from the ids.
        """
        extra = extra_body or {}
        if parent is None or parent.model_response is None:
            ids: list[int] = self._own(message_list, parent, tokenizer, tools=tools, extra_body=extra)
            return ids
        response = parent.model_response
        found = self.prompts.extend(
            self.prompts.of(tokenizer, extra.get("chat_template_kwargs", {})),
            [*response.input_tokens, *response.output_tokens],
            message_list,
            tools=None if tools is None else list(tools),
            turn=parent.output_message_list[-1] if parent.output_message_list else None,
            history=parent.messages,
            sampled=len(response.output_tokens),
            truncated=True if response.stop_reason in ("length", "abort") else None,
        )
        assert not isinstance(found, Refusal)  # noqa: S101  # the prompts raise
        return found.ids.tolist()
