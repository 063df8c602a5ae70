"""The agent programs that are run, and how each is pointed at the gateway."""

from __future__ import annotations

import json
import shutil

import attrs

from .engine import CALLS, Call, Script, thought, written
from .program import TASK, Place, Program, calling, library, node

DONE = Call("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})
ANTHROPIC = {
    "ANTHROPIC_API_KEY": "none",
    "ANTHROPIC_MODEL": "any",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
}


def _mini_swe_agent(place: Place) -> list[str]:
    options = {
        "model_name": "hosted_vllm/any",
        "cost_tracking": "ignore_errors",
        "model_kwargs.api_base": f"{place.url}/v1",
        "model_kwargs.api_key": "none",
    }
    given = [word for name, value in options.items() for word in ("-c", f"model.{name}={value}")]
    program = str(place.environment / "bin" / "mini")
    return [program, "-c", "mini.yaml", *given, "-y", "--exit-immediately", "-t", TASK]


def _shell_script(place: Place) -> Script:
    """Return a script for an agent that ends with a command."""
    return Script.of(lambda number: Call("bash", {"command": f"cat {place.note(number)}"}), written(DONE))


def _code_script(place: Place) -> Script:
    """Return a script for an agent whose tool calls are code."""

    def turn(number: int) -> str:
        code = f'print(read_note("{place.note(number)}", {number + 1}))'
        if number == CALLS:
            code = 'final_answer("The river is wide.")'
        return f"{thought(number)}Thought: the next note may say more.\n<code>\n{code}\n</code>"

    return Script(turn, lambda text, _: "read_note" in text)


def _final_answer_script(place: Place) -> Script:
    """Return a script for an agent that ends with a call."""
    answer = Call("final_answer", {"answer": "The river is wide."})
    read = library("smolagents").script(place)
    return attrs.evolve(read, turn=lambda number: read.turn(number) if number < CALLS else written(answer))


def _text_script(_: Place) -> Script:
    """Return a script for an agent without tools, which gets one message after another."""
    return Script(lambda number: f"{thought(number)}Note {number + 1} names a width.", lambda *_: True)


def _claude(place: Place) -> list[str]:
    """Return Claude Code's command; `claude` itself needs an install script, and none is run."""
    wrapper = place.environment / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
    return [shutil.which("node") or "node", str(wrapper), "-p", TASK]


def _opencode(place: Place) -> list[str]:
    """Return OpenCode's command, the program for this machine, likewise."""
    machines = (place.environment / "node_modules").glob("opencode-*-*/bin/opencode")
    return [str(min(machines, key=lambda path: len(str(path)))), "run", "-m", "gateway/any", TASK]


def _tool_search(place: Place, number: int) -> Call:
    """Return a call that reads a note; the third one loads a tool that was not offered."""
    if number == 2:
        return Call("ToolSearch", {"query": "select:NotebookEdit", "max_results": 5})
    return Call("Read", {"file_path": place.note(number)})


def _codex_config(place: Place) -> str:
    return f"""
model = "any"
model_provider = "gateway"
[model_providers.gateway]
name = "gateway"
base_url = "{place.url}/v1"
env_key = "GATEWAY_KEY"
wire_api = "responses"
"""


def _cline_config(place: Place) -> str:
    name, address = "openai-compatible", f"{place.url}/v1"
    settings = {"provider": name, "apiKey": "none", "model": "any", "baseUrl": address}
    entry = {"settings": settings, "updatedAt": "2026-11-22T00:00:00.000Z", "tokenSource": "manual"}
    return json.dumps({"version": 1, "lastUsedProvider": name, "modes": {}, "providers": {name: entry}})


def _continue_config(place: Place) -> str:
    model = {
        "name": "any",
        "provider": "openai",
        "model": "any",
        "apiBase": f"{place.url}/v1",
        "apiKey": "none",
        "capabilities": ["tool_use"],
    }
    return json.dumps({"name": "any", "version": "1.0.0", "schema": "v1", "models": [model]})


def _vibe_config(place: Place) -> str:
    return f"""
active_model = "any"
enable_telemetry = false
[[providers]]
name = "gateway"
api_base = "{place.url}/v1"
api_key_env_var = "GATEWAY_KEY"
[[models]]
name = "any"
provider = "gateway"
"""


def _copilot(api: str) -> Program:
    """Return GitHub's Copilot CLI with one of the APIs that it knows."""
    kind = "anthropic" if api == "anthropic" else "openai"
    return Program(
        name=f"copilot ({api})",
        agent="copilot",
        package="@github/copilot",
        command=lambda place: [node(place, "copilot"), "-p", TASK, "--allow-all-tools"],
        settings=lambda place: {
            "COPILOT_OFFLINE": "true",
            "COPILOT_MODEL": "any",
            "COPILOT_PROVIDER_TYPE": kind,
            "COPILOT_PROVIDER_BASE_URL": place.url if api == "anthropic" else f"{place.url}/v1",
            "COPILOT_PROVIDER_API_KEY": "none",
            "COPILOT_PROVIDER_WIRE_API": "responses" if api == "responses" else "completions",
        },
        script=calling(lambda place, number: Call("view", {"path": place.note(number)})),
    )


def _opencode_config(place: Place) -> str:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "none"},
        "models": {"any": {"name": "any"}},
    }
    return json.dumps({"provider": {"gateway": provider}, "share": "disabled", "autoupdate": False})


def _pi_config(place: Place) -> str:
    provider = {
        "baseUrl": f"{place.url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{"id": "any", "reasoning": True}],
    }
    return json.dumps({"providers": {"gateway": provider}})


LIBRARIES = (
    library("openai-agents", "chat"),
    library("openai-agents", "responses"),
    library("pydantic-ai", "chat", package="pydantic-ai-slim"),
    library("pydantic-ai", "responses", package="pydantic-ai-slim"),
    library("pydantic-ai", "anthropic", package="pydantic-ai-slim"),
    library("pydantic-ai", "google", package="pydantic-ai-slim"),
    library("langgraph", "chat"),
    library("langgraph", "anthropic"),
    library("litellm", "chat"),
    library("litellm", "anthropic"),
    attrs.evolve(library("smolagents", "tools"), script=_final_answer_script),
    attrs.evolve(library("smolagents", "code"), script=_code_script),
    library("autogen", package="autogen-agentchat"),
    library("crewai"),
    library("strands-agents"),
    library("agno"),
    library("llama-index", package="llama-index-core"),
    library("haystack", package="haystack-ai"),
    library("camel", package="camel-ai"),
    attrs.evolve(
        library("semantic-kernel"),
        script=calling(
            lambda place, number: Call("Notes-read_note", {"path": place.note(number), "lines": number + 1})
        ),
    ),
    attrs.evolve(
        library("google-adk"),
        settings=lambda place: {"GOOGLE_GEMINI_BASE_URL": place.url, "GOOGLE_API_KEY": "none"},
    ),
    attrs.evolve(
        library("claude-agent-sdk"),
        settings=lambda place: {
            **ANTHROPIC,
            "ANTHROPIC_BASE_URL": place.url,
            "ENABLE_TOOL_SEARCH": "false",  # else its own tool is declared after a search for it
        },
        script=calling(
            lambda place, number: Call("mcp__notes__read_note", {"path": place.note(number), "lines": 1})
        ),
    ),
    attrs.evolve(
        library("aider", package="aider-chat"),
        settings=lambda place: {"OPENAI_API_BASE": f"{place.url}/v1", "OPENAI_API_KEY": "none"},
        script=_text_script,
        rows=CALLS,
        why="it takes its reminder off the user's message of the turn before",
    ),
)

CODERS = (
    Program(
        name="mini-swe-agent",
        agent="mini-swe-agent",
        package="mini-swe-agent",
        command=_mini_swe_agent,
        script=_shell_script,
        settings=lambda place: {"MSWEA_CONFIGURED": "1", "MSWEA_GLOBAL_CONFIG_DIR": str(place.home / "mini")},
    ),
    Program(
        name="codex",
        agent="codex",
        package="@openai/codex",
        command=lambda place: [
            node(place, "codex"),
            *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK),
        ],
        settings=lambda place: {"CODEX_HOME": str(place.home / "codex"), "GATEWAY_KEY": "none"},
        files=lambda place: {str(place.home / "codex" / "config.toml"): _codex_config(place)},
        script=calling(lambda place, number: Call("exec_command", {"cmd": f"cat {place.note(number)}"})),
    ),
    Program(
        name="claude-code",
        agent="claude-code",
        package="@anthropic-ai/claude-code",
        command=_claude,
        settings=lambda place: {**ANTHROPIC, "ANTHROPIC_BASE_URL": place.url},
        script=calling(lambda place, number: Call("Read", {"file_path": place.note(number)})),
    ),
    Program(
        name="claude-code (tool search)",
        agent="claude-code",
        package="@anthropic-ai/claude-code",
        command=_claude,
        settings=lambda place: {**ANTHROPIC, "ANTHROPIC_BASE_URL": place.url},
        script=calling(_tool_search),
    ),
    Program(
        name="opencode",
        agent="opencode",
        package="opencode-ai",
        command=_opencode,
        settings=lambda place: {"OPENCODE_CONFIG": str(place.home / "opencode.json")},
        files=lambda place: {str(place.home / "opencode.json"): _opencode_config(place)},
        script=calling(lambda place, number: Call("read", {"filePath": place.note(number)})),
    ),
    Program(
        name="qwen-code",
        agent="qwen-code",
        package="@qwen-code/qwen-code",
        command=lambda place: [node(place, "qwen"), "--auth-type", "openai", "--yolo", "-p", TASK],
        settings=lambda place: {
            "OPENAI_BASE_URL": f"{place.url}/v1",
            "OPENAI_API_KEY": "none",
            "OPENAI_MODEL": "any",
        },
        script=calling(lambda place, number: Call("read_file", {"file_path": place.note(number)})),
    ),
    Program(
        name="gemini-cli",
        agent="gemini-cli",
        package="@google/gemini-cli",
        command=lambda place: [node(place, "gemini"), "--yolo", "-m", "gemini-any", "-p", TASK],
        settings=lambda place: {
            "GOOGLE_GEMINI_BASE_URL": place.url,
            "GEMINI_API_KEY": "none",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
        },
        files=lambda place: {
            str(place.home / ".gemini" / "settings.json"): json.dumps(
                {
                    "security": {"auth": {"selectedType": "gemini-api-key"}},
                    "privacy": {"usageStatisticsEnabled": False},
                }
            )
        },
        script=calling(lambda place, number: Call("read_file", {"file_path": place.note(number)})),
    ),
    Program(
        name="pi",
        agent="pi",
        package="@mariozechner/pi-coding-agent",
        command=lambda place: [node(place, "pi"), "--provider", "gateway", "--model", "any", "-p", TASK],
        settings=lambda place: {"PI_CODING_AGENT_DIR": str(place.home / "pi")},
        files=lambda place: {str(place.home / "pi" / "models.json"): _pi_config(place)},
        script=calling(lambda place, number: Call("read", {"path": place.note(number)})),
    ),
    _copilot("chat"),
    _copilot("responses"),
    _copilot("anthropic"),
    Program(
        name="cline",
        agent="cline",
        package="cline",
        command=lambda place: [node(place, "cline"), TASK],
        files=lambda place: {
            str(place.home / ".cline" / "data" / "settings" / "providers.json"): _cline_config(place)
        },
        script=calling(lambda place, number: Call("read_files", {"files": [{"path": place.note(number)}]})),
    ),
    Program(
        name="continue",
        agent="continue",
        package="@continuedev/cli",
        command=lambda place: [
            node(place, "cn"),
            *("--config", str(place.home / "config.yaml"), "--auto", "-p", TASK),
        ],
        settings=lambda _: {"CONTINUE_TELEMETRY_ENABLED": "0"},
        files=lambda place: {str(place.home / "config.yaml"): _continue_config(place)},
        script=calling(lambda place, number: Call("Read", {"filepath": place.note(number)})),
    ),
    Program(
        name="letta-code",
        agent="letta-code",
        package="@letta-ai/letta-code",
        command=lambda place: [
            node(place, "letta"),
            *("--backend", "local", "-m", "lmstudio/any", "--yolo", "-p", TASK),
        ],
        settings=lambda place: {"LMSTUDIO_BASE_URL": f"{place.url}/v1", "LMSTUDIO_API_KEY": "none"},
        script=calling(lambda place, number: Call("Read", {"file_path": place.note(number)})),
    ),
    Program(
        name="mistral-vibe",
        agent="mistral-vibe",
        package="mistral-vibe",
        command=lambda place: [
            str(place.environment / "bin" / "vibe"),
            *("--agent", "auto-approve", "--trust", "-p", TASK),
        ],
        settings=lambda place: {"VIBE_HOME": str(place.home / "vibe"), "GATEWAY_KEY": "none"},
        files=lambda place: {str(place.home / "vibe" / "config.toml"): _vibe_config(place)},
        script=calling(lambda place, number: Call("read_file", {"path": place.note(number)})),
    ),
    Program(
        name="gptme",
        agent="gptme",
        package="gptme",
        command=lambda place: [
            str(place.environment / "bin" / "gptme"),
            *("--non-interactive", "--tool-format", "tool", "-m", "local/any", TASK),
        ],
        settings=lambda place: {"OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_API_KEY": "none"},
        script=lambda place: Script.of(
            lambda number: Call("shell", {"command": f"cat {place.note(number)}"}),
            written(Call("complete", {})),
        ),
        rows=2,
        why="it runs the first of two parallel calls, and leaves the other out of its history",
    ),
    Program(
        name="openhands",
        agent="openhands",
        package="openhands",
        command=lambda place: [
            str(place.environment / "bin" / "openhands"),
            *("--headless", "--override-with-envs", "--exit-without-confirmation", "-t", TASK),
        ],
        settings=lambda place: {
            "LLM_BASE_URL": f"{place.url}/v1",
            "LLM_MODEL": "openai/any",
            "LLM_API_KEY": "none",
        },
        script=calling(
            lambda place, number: Call(
                "terminal", {"command": f"cat {place.note(number)}", "security_risk": "LOW"}
            )
        ),
    ),
)

PROGRAMS = (*CODERS, *LIBRARIES)
AGENTS = tuple(sorted({program.agent for program in PROGRAMS}))
