"""The word lists that the corpus is written with and that the sampler speaks with."""

from __future__ import annotations

NOUNS = (
    *("river", "window", "answer", "question", "garden", "engine", "letter", "token", "bridge", "mountain"),
    *("message", "station", "harbour", "kitchen", "picture", "number", "winter", "summer", "paper", "valley"),
    *("machine", "library", "teacher", "village", "morning", "evening", "problem", "reason", "weather"),
    *("result", "signal", "market", "forest", "island", "record", "branch", "history", "prompt", "template"),
)
VERBS = (
    *("carries", "finds", "keeps", "opens", "closes", "follows", "answers", "measures", "writes", "reads"),
    *("counts", "splits", "joins", "crosses", "returns", "builds", "checks", "holds", "sends", "watches"),
)
ADJECTIVES = (
    *("small", "quiet", "bright", "early", "late", "narrow", "wide", "plain", "green", "distant", "careful"),
    *("simple", "heavy", "gentle", "second", "third", "whole", "broken", "open", "northern"),
)
OPENERS = (
    *("Then", "Often", "Perhaps", "Therefore", "At first", "In the end", "However", "Meanwhile"),
    *("For example", "As before", "Step by step", "Of course"),
)
ABROAD = (
    *("café", "naïve", "Zürich", "smörgås", "łódź", "señor", "garçon", "Ελλάδα", "данные", "мост"),
    *("東京", "水曜日", "서울", "שלום", "مرحبا", "½", "≤", "→", "€", "🙂", "🚲", "👩‍🚀"),
)
PLACES = ("Paris", "Lisbon", "Nairobi", "Osaka", "Quito", "Tromsø", "Zürich", "São Paulo", "Reykjavík")
KEYS = (
    *(
        "name",
        "city",
        "unit",
        "query",
        "path",
        "limit",
        "count",
        "value",
        "text",
        "units",
        "date",
        "id",
        "type",
    ),
    *("function", "parameters", "arguments", "description", "properties", "required", "object", "string"),
    *(
        "integer",
        "number",
        "boolean",
        "array",
        "items",
        "enum",
        "result",
        "status",
        "error",
        "content",
        "role",
    ),
)
CODE = (
    "def add(left, right):\n    return left + right\n",
    "for index, item in enumerate(items):\n    print(index, item)\n",
    "if value is None:\n    raise ValueError('no value')\n",
    "const total = rows.map((row) => row.count).reduce((a, b) => a + b, 0);\n",
    "SELECT name, count(*) FROM records WHERE status = 'open' GROUP BY name;\n",
    "curl -s https://example.org/api/v1/items?limit=10 | jq '.result[0]'\n",
    "```python\nimport json\nprint(json.dumps({'a': 1}, indent=2))\n```\n",
    "<table>\n  <tr><td>left</td><td>right</td></tr>\n</table>\n",
)
COMMON = (
    *("hello", "please", "what", "when", "where", "which", "who", "how", "why", "could", "would", "should"),
    *("you", "your", "we", "they", "this", "that", "these", "with", "from", "about", "have", "will", "can"),
    *("today", "tomorrow", "tell", "give", "make", "look", "need", "know", "think", "write", "find", "there"),
)
TURN = (
    *("system", "user", "assistant", "tool", "think", "tool_call", "tool_response", "tools", "functions"),
    *("You may call these functions, described in JSON, one on each line:", "Write every call as"),
)
