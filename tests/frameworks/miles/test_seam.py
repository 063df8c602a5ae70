"""Where the integration goes into Miles' TITO tokenizers."""

from __future__ import annotations

from inspect import signature

from miles_tito_tokenizers import TITOTokenizer

from tito_io.integrations.miles import TAKES, BridgeTITOTokenizer


def test_a_tokenizer_merges_ids_and_messages() -> None:
    assert tuple(signature(BridgeTITOTokenizer.merge_tokens).parameters) == ("self", *TAKES)
    assert issubclass(BridgeTITOTokenizer, TITOTokenizer)


def test_a_tokenizer_has_these_arguments() -> None:
    assert list(signature(TITOTokenizer.__init__).parameters)[1:] == [
        "tokenizer",
        "chat_template_kwargs",
        "assistant_start_str",
        "special_token_ids",
        "allowed_append_roles",
    ]
