"""The table of engines: what each does to chat messages before a chat template sees them.

Paths are those of the released packages. `tests/engines/preprocessing` compares what running servers of
vLLM, SGLang, Dynamo and llama.cpp do, and `differences.toml` there names what still differs; the other rows
were read.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from tito_core import InputError

from .message_rules import MEDIA, Absent, Arguments, Developer, Keys, LastTurn, MessageRules, NoParts
from .template_traits import Lists

VLLM = MessageRules(
    engine="vLLM 0.32",
    lists=Lists.LOOPS,  # vllm/renderers/hf.py:483 _detect_content_format
    wraps=Lists.LOOPS,  # chat_utils.py:2086 a text is a part, and `wrap_dicts` keeps it one
    separator="\n",  # chat_utils.py:1883
    result_separator="\n",  # chat_utils.py:2141
    text_types=frozenset({"text", "input_text", "output_text", "refusal", "thinking"}),  # chat_utils.py:1815
    # A list without one of these is checked by OpenAI's strict types, and refused (openai/types/chat).
    own_types=frozenset({"text", "thinking", "refusal", "tool_reference", *MEDIA}),
    names_tools=True,  # chat_utils.py:2001
    takes_strings=True,  # chat_utils.py:1922
    skips_null=True,  # chat_utils.py:1936
    skips_empty=True,  # chat_utils.py:1872: a part counts if it is true
    parts=Keys(  # chat_utils.py:1687 _collect_extra_fields: fields of any kind of part are left out
        ("type", "text"),
        others=True,
        dropped=frozenset(
            {"audio_embeds", "audio_url", "closed", "data", "file", "image_embeds", "image_pil", "image_url"}
            | {"input_audio", "name", "prompt_cache_breakpoint", "refusal", "thinking", "uuid"}
            | {"video_embeds", "video_url"}
        ),
    ),
    absent=Absent.EMPTY,  # chat_utils.py:2084
    refuses_null=frozenset({"system", "developer", "user", "tool"}),  # the types of OpenAI's messages
    reasoning=("reasoning", "reasoning_content"),  # entrypoints/openai/chat_completion/protocol.py:577
    reasoning_as=("reasoning", "reasoning_content"),  # chat_utils.py:2113
    arguments=Arguments.OBJECT_OR_EMPTY,  # chat_utils.py:2190
    keeps_no_calls=False,  # chat_utils.py:2168
    calls=Keys(("id", "function", "type"), others=True),  # the order of OpenAI's types
    functions=Keys(("arguments", "name"), others=True),
    developer=Developer.MERGED,  # hf.py:517 and :532
    billing_line=True,  # chat_utils.py:2042
    messages={  # chat_utils.py:2106; other keys do not reach the template
        "assistant": Keys(
            ("role", "content", "tool_calls", "reasoning", "reasoning_content", "name", "task")
        ),
        "tool": Keys(("role", "content", "tool_call_id", "name", "task")),
        "developer": Keys(("role", "content", "name", "task", "tools"), fills=dict.fromkeys(("tools",))),
        "": Keys(("role", "content", "name", "task")),
    },
    tools=Keys(("type", "function", "defer_loading")),  # chat_completion/protocol.py:191
    tool_functions=Keys(  # entrypoints/generate/base/protocol.py:298
        ("name", "description", "parameters", "strict", "defer_loading"),
        fills=dict.fromkeys(("description", "parameters")),
    ),
    defers=True,  # the same, _propagate_defer_loading
    keeps_forbidden_tools=True,  # renderers/online_renderer.py:292; an option leaves them out
)

SGLANG = MessageRules(
    engine="SGLang 0.5.23",
    lists=Lists.NAMED_LOOPS,  # parser/jinja_template_utils.py:83 detect_jinja_template_content_format
    separator=" ",  # jinja_template_utils.py:335; empty texts are joined, too
    result_separator=" ",  # entrypoints/openai/serving_chat.py:159 normalize_tool_content
    left_out=frozenset({"thinking", "reasoning"}),  # jinja_template_utils.py:244
    parts=Keys(("type", "text")),  # entrypoints/openai/protocol.py:585
    absent=Absent.EMPTY_TEXT,  # serving_chat.py:2134
    refuses_null=frozenset({"user"}),  # protocol.py:790
    reasoning=("reasoning_content", "reasoning"),  # protocol.py:762; the adapter sends the first name
    reasoning_as=("reasoning_content",),
    arguments=Arguments.OBJECT_OR_REFUSED,  # serving_chat.py:181
    parses=orjson.loads,  # the same: no NaN, and integers of more than 64 bits are floats
    lower_roles=True,  # protocol.py _normalize_role
    calls=Keys(
        ("id", "index", "type", "function"), fills={"id": None, "index": None, "type": "function"}
    ),  # protocol.py:739
    functions=Keys(("name", "arguments"), fills=dict.fromkeys(("name", "arguments"))),  # protocol.py:732
    messages={  # protocol.py:754 and :790
        "user": Keys(("role", "content")),
        "": Keys(
            ("role", "content", "tool_call_id", "name", "phase", "reasoning_content", "tool_calls", "tools")
        ),
    },
    lists_last=True,  # jinja_template_utils.py:316
    tools=Keys(
        ("type", "function", "defer_loading"), fills=dict.fromkeys(("defer_loading",))
    ),  # protocol.py:844
    tool_functions=Keys(  # protocol.py:828
        ("description", "name", "parameters", "strict", "defer_loading"),
        fills=dict.fromkeys(("description", "parameters")),
        as_given=True,
    ),
    defers=True,  # protocol.py _propagate_defer_loading
    last_turn=LastTurn.USER,  # serving_chat.py:546
)

LMDEPLOY = MessageRules(
    engine="LMDeploy 0.18",
    separator="\n",  # lmdeploy/serve/processors/multimodal.py:97 merge_message_content
    skips_unknown=True,  # multimodal.py:98
    absent=Absent.EMPTY_TEXT,  # multimodal.py:86
    arguments=Arguments.OBJECT_OR_TEXT,  # serve/parsers/response_parser.py:54; cut text is refused there
    calls=Keys((), others=True),
    functions=Keys((), others=True),
    tools=Keys(()),
    bare_tools=True,  # serve/parsers/tool_parser/tool_parser.py:62
    tool_functions=Keys(  # serve/openai/protocol.py:106
        ("description", "name", "parameters"), fills=dict.fromkeys(("description", "parameters"))
    ),
    keeps_forbidden_tools=True,  # tool_parser.py:35 dump_tools
)

TENSORRT_LLM = MessageRules(
    engine="TensorRT-LLM 1.3",
    separator="\n",  # tensorrt_llm/serve/chat_utils.py parse_chat_message_content_parts
    skips_null=True,  # chat_utils.py parse_chat_message_content_part
    skips_empty=True,  # the same: a part counts if it is true
    takes_strings=True,  # the same
    parts=Keys(("type", "text")),
    absent=Absent.EMPTY_TEXT,  # chat_utils.py parse_chat_message_content
    reasoning=("reasoning", "reasoning_content"),  # chat_utils.py _parse_assistant_message_content
    reasoning_as=("reasoning_content",),
    arguments=Arguments.OBJECT_OR_REFUSED,  # the same
    calls=Keys(("id", "function", "type"), others=True),  # the order of OpenAI's types
    functions=Keys(("arguments", "name"), others=True),
    messages={  # chat_utils.py parse_chat_message_content; other keys are dropped, `name` too
        "assistant": Keys(("role", "content", "reasoning_content", "tool_calls")),
        "tool": Keys(("role", "content", "tool_call_id")),
        "": Keys(("role", "content", "tools")),
    },
    tools=Keys(("type", "function")),  # serve/openai_protocol.py ChatCompletionToolsParam
    tool_functions=Keys(
        ("name", "description", "parameters", "strict"),
        fills=dict.fromkeys(("description", "parameters", "strict")),
    ),
    keeps_forbidden_tools=True,  # serve/render/chat.py prepare_chat_request
)

DYNAMO = MessageRules(
    engine="NVIDIA Dynamo 1.6",  # the crate dynamo-renderer 8.0, src/template/oai.rs and formatters.rs
    lists=Lists.REQUIRED,  # formatters.rs:206 detect_content_array_usage
    wraps=Lists.REQUIRED,  # oai.rs:122
    separator="\n",  # oai.rs:139; empty texts are joined, too
    no_parts=NoParts.LIST,  # oai.rs may_be_fix_msg_content: only what is all text is joined
    passed=frozenset({"refusal"}),
    mixed=True,
    parts=Keys(("type", "text")),
    absent=Absent.DROPPED,  # oai.rs:118
    refuses_null=frozenset({"system", "developer", "user", "tool"}),
    reasoning=("reasoning_content", "reasoning"),  # an alias
    reasoning_as=("reasoning_content",),
    think_tags=True,  # oai.rs:256
    moves_systems=True,  # since 5.1.2 of the crate, github.com/ai-dynamo/frontend-crates/pull/164
    arguments=Arguments.OBJECT_UNLESS_STRING,  # oai.rs:199, formatters.rs:118
    calls=Keys(("id", "type", "function")),
    functions=Keys(("name", "arguments")),
    messages={
        "assistant": Keys(
            (
                "role",
                "content",
                "reasoning_content",
                "refusal",
                "name",
                "audio",
                "tool_calls",
                "function_call",
            )
        ),
        "tool": Keys(("role", "content", "tool_call_id")),
        "": Keys(("role", "content", "name")),
    },
    tools=Keys(("type", "function")),
    tool_functions=Keys(  # oai.rs:22
        ("name", "description", "parameters", "strict"), fills={"description": ""}, fills_last=True
    ),
)

LLAMACPP = MessageRules(
    engine="llama.cpp",  # common/chat.cpp in xllamacpp 2026.10.11549
    lists=Lists.LOOPED,  # common/jinja/caps.cpp:163 renders with values that count their uses
    wraps=Lists.LOOPED_TEXTS,  # caps.cpp:171, chat.cpp:463
    separator="\n",  # chat.cpp:498
    skips_first=True,  # chat.cpp:487
    no_parts=NoParts.TEXT,  # chat.cpp:200
    parts=Keys(("type", "text")),
    absent=Absent.EMPTY_TEXT,  # chat.cpp:200
    reasoning=("reasoning_content", "reasoning"),  # chat.cpp:423 has the first name
    reasoning_as=("reasoning_content",),
    arguments=Arguments.JSON_IF_READ,  # chat.cpp:1022, caps.cpp:323
    keeps_no_calls=False,  # chat.cpp:211
    calls=Keys(("type", "function", "id")),  # chat.cpp:216
    functions=Keys(("name", "arguments")),
    developer=Developer.SYSTEM,  # chat.cpp:979
    messages={  # chat.cpp:160
        "": Keys(("role", "content", "reasoning_content", "name", "tool_call_id", "tool_calls")),
    },
    tools=Keys(("type", "function")),  # chat.cpp:527
    tool_functions=Keys(("name", "description", "parameters"), fills={"description": "", "parameters": {}}),
    keeps_forbidden_tools=True,  # chat.cpp: only parsers and grammars look at the choice
    variables={"enable_thinking": True},  # chat.cpp:892
    dates={"datetime": "%b %d %Y", "date_string": "%d %b %Y"},  # chat.cpp:1058
)

UNCHANGED = MessageRules(engine="transformers 5.23, messages as they came")
"""What a family alone does: a template gets what transformers gives it of these very messages."""
TRANSFORMERS = MessageRules(
    engine="transformers 5.23",
    arguments=Arguments.OBJECT_IF_WRITTEN,  # requests have a text, and transformers documents an object
    calls=Keys((), others=True),
    functions=Keys((), others=True),
)
"""What is rendered for objects in this process, and for files that name no engine."""

RULES: Mapping[str, MessageRules] = {
    "transformers": TRANSFORMERS,
    "vllm": VLLM,
    "sglang": SGLANG,
    "dynamo": DYNAMO,
    "llamacpp": LLAMACPP,
    "lmdeploy": LMDEPLOY,
    "tensorrt-llm": TENSORRT_LLM,
}


def rules_for(engine: str) -> MessageRules:
    """Return the rules of an engine by its name.

    Raises `InputError` for a name that is not in the table.

    >>> rules_for("vllm").engine
    'vLLM 0.32'
    """
    if engine not in RULES:
        known = f"name one of {', '.join(RULES)}; the embedded engine renders as vllm"
        raise InputError(f"engine is {engine!r:.60}: {known}")
    return RULES[engine]
