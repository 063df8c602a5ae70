"""Sampling arguments in the OpenAI manner: each is understood, or named as wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tito_core import InputError
from tito_io.client.sampling import parse_sampling
from tito_io.engines.protocol import Sampling


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (None, Sampling()),
        ({}, Sampling()),
        ({"max_tokens": 8}, Sampling(max_tokens=8)),
        ({"max_completion_tokens": 8}, Sampling(max_tokens=8)),
        ({"max_completion_tokens": 8, "max_tokens": 8}, Sampling(max_tokens=8)),
        ({"max_completion_tokens": None, "max_tokens": 8}, Sampling(max_tokens=8)),
        ({"temperature": 0, "seed": 0, "n": 2}, Sampling(temperature=0, seed=0, n=2)),
        ({"stop": "a"}, Sampling(stop=("a",))),
        ({"stop": ["a", "b"], "stop_token_ids": [3]}, Sampling(stop=("a", "b"), stop_ids=(3,))),
        ({"stop": [], "stop_token_ids": []}, Sampling()),
        ({"top_p": None, "seed": None, "n": None, "extra_body": None}, Sampling()),
        ({"logprobs": True, "return_token_ids": False}, Sampling()),  # ids are always asked for
        ({"top_p": 0.9, "top_k": 5}, Sampling(extra={"top_p": 0.9, "top_k": 5})),
        ({"top_p": 0.9, "extra_body": {"top_k": 5}}, Sampling(extra={"top_p": 0.9, "top_k": 5})),
        ({"top_p": 0.9, "extra_body": {"top_p": 0.5}}, Sampling(extra={"top_p": 0.5})),
        ({"top_p": 0.9, "extra_body": {"top_p": None}}, Sampling()),
        ({"extra_body": {"max_tokens": 3, "return_token_ids": True}}, Sampling(max_tokens=3)),
    ],
)
def test_arguments_are_understood(given: Any, meant: Sampling) -> None:
    asked = parse_sampling(given)
    assert (asked.sampling, asked.template_args) == (meant, {})


@pytest.mark.parametrize("within", [False, True])
def test_template_arguments_are_no_sampling(within: bool) -> None:
    said = {"chat_template_kwargs": {"enable_thinking": False}}
    asked = parse_sampling({"extra_body": said} if within else said)
    assert asked.template_args == {"enable_thinking": False}
    assert asked.sampling == Sampling()


def test_the_caller_s_arguments_stay_as_they_are() -> None:
    given = {"max_tokens": 8, "extra_body": {"top_k": 5}, "stop": ["a"]}
    parse_sampling(given)
    assert given == {"max_tokens": 8, "extra_body": {"top_k": 5}, "stop": ["a"]}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max_tokens": 1, "max_completion_tokens": 2}, "are one thing"),
        ({"max_tokens": 0}, "max_tokens is 0; give at least 1"),
        ({"max_tokens": "8"}, "max_tokens is '8'; give a whole number"),
        ({"max_tokens": True}, "max_tokens is True; give a whole number"),
        ({"n": 0}, "n is 0; give at least 1"),
        ({"seed": 1.5}, "seed is 1.5; give a whole number"),
        ({"temperature": "hot"}, "temperature is 'hot'; give a number"),
        ({"temperature": False}, "temperature is False; give a number"),
        ({"stop": 3}, "stop is 3; give a list"),
        ({"stop": [3]}, "not empty"),
        ({"stop": ""}, "not empty"),
        ({"stop_token_ids": "12"}, "stop_token_ids is '12'; give a list"),
        ({"stop_token_ids": [1.5]}, "stop_token_ids is 1.5"),
        ({"chat_template_kwargs": ["x"]}, "chat_template_kwargs is .*; give an object"),
        ({"extra_body": ["x"]}, "extra_body is .*; give an object"),
        ({"model": "m"}, "'model' is no sampling argument; the engine is made with it"),
        ({"stream": True}, "pass `watch`"),
        ({"extra_body": {"tools": []}}, "pass `tools`"),
    ],
)
def test_an_argument_that_is_wrong_is_named(given: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        parse_sampling(given)
