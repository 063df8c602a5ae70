"""Where Dynamo takes ids."""

from __future__ import annotations

from typing import Literal

Route = Literal["chat", "completions"]
"""`chat`: ids beside one placeholder message, the server's parsers make the message. `completions`: ids as
the prompt, no parser and no grammar between the model and its ids."""

CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"
