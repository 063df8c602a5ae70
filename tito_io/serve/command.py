"""The `tito serve` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import anyio
import attrs
import click

from tito_core import InputError, TitoError
from tito_core.normalization.receipts import CHOICES
from tito_io.cli import options as shared
from tito_io.cli.errors import BAD_INPUT, ENGINE_FAILED, complain, error_text, fail, visible
from tito_io.cli.policy import odd_stop, policy_of, truncated
from tito_io.cli.topics import TopicCommand
from tito_io.engines.protocol import (
    Engine,
    EngineError,
    Sampling,
    ServerError,
    UnreachableError,
    UnsupportedError,
)
from tito_io.engines.registry import EngineOptions, make_engine
from tito_io.extras import missing
from tito_io.families.family import Family
from tito_io.llamacpp_server.command import gguf_options, local_engine, taken_settings
from tito_io.llamacpp_server.settings import ServerSettings

from .address import check_address
from .bounds import ConnectionBounds, raise_open_files
from .client_noise import NoiseFilter, NoiseRule, option_name, parse_rules
from .refusals import MIB, GatewayLimits
from .store import StoreError
from .stores import open_store

if TYPE_CHECKING:
    from .gateway import Gateway
    from .spans import TurnSpans

F = TypeVar("F", bound=Callable[..., Any])
TOPICS = {
    "The engine": "api-key vocab-size timeout fast seed check-every on-abort on-other-text sampling-masks",
    "llama.cpp's server, started by --gguf": "context slots threads gpu-layers precise",
    "Sessions and clients": "durable share-keys trusted-host wire one-sample fetch-images",
    "How history is matched, and what follows a turn": "forgive strip-system ignore special-tokens "
    "truncated odd-stop tools-when-tool-choice-none",
    "Logs": "log-level access-log spans",
    "Limits": "drain max-body max-containers max-scalars max-messages max-turns max-nodes max-tokens "
    "max-images max-media max-sessions max-connections header-timeout body-timeout max-calls max-idle",
}
"""Options by topic; those that most gateways need are in none, and stand first."""
STATUSES = """\b
Exit status:
  0  a signal stopped it, and it finished what was in flight
  2  bad input: options, store, model folder
  3  the engine or the store failed at the start; an engine that is not there yet is waited for
130  it was interrupted before it listened
"""
LIMITS = GatewayLimits()
LEVELS = {
    "debug": "also loading and unloading sessions",
    "info": "a line per turn",
    "warning": "what needs attention",
    "error": "failed turns only",
}
STORES = {
    "memory": "sessions end with the process",
    "sqlite:PATH": "one file, one gateway",
    "redis://HOST:PORT": "several gateways share sessions (extra redis)",
}
FORGIVE = {
    **{option_name(rule): rule.value for rule in NoiseRule},
    **{option_name(row): row.says + " (off by default)" * (not CHOICES[row].gateway) for row in CHOICES},
    "default": "all of these that are not off by default",
    "none": "ignore nothing",
}
SPECIAL_TOKENS = {"text": "as plain letters", "keep": "as the special token"}
OTHER_TEXT = {"notice": "count and log it", "raise": "an error; the turn is not kept"}
FORBIDDEN_TOOLS = {"keep": "show them", "exclude": "leave them out"}
SPANS = {
    "off": "none",
    "turns": "one for each turn",
    "ids": "with the ids that each turn adds",
}
WIRES = {
    "later": "fields only on request",
    "older": "meta_info in every answer, errors as Miles has them",
}
LIMIT_OPTIONS = (
    ("--max-body", "body_bytes", "Longest request body; a longer one gets status 413."),
    ("--max-containers", "containers", "Most lists and objects in a request body; more get status 429."),
    ("--max-scalars", "scalars", "Most keys and values in a request body; more get status 429."),
    (
        "--max-messages",
        "messages",
        "Most messages in a request, each part of one counted as a message; more get status 429.",
    ),
    ("--max-turns", "turns", "Most assistant messages in one prompt; more get status 429."),
    ("--max-nodes", "nodes", "Most turns of a session, all branches together; more get status 429."),
    ("--max-tokens", "tokens", "Most ids of a session, shared ids counted once; more get status 429."),
    ("--max-images", "images", "Most images in one prompt; more get status 429."),
    (
        "--max-media",
        "media_bytes",
        "Most bytes of images of a session, each image counted once; more get status 429.",
    ),
    ("--max-sessions", "sessions", "Most sessions in the store; more get status 429."),
    (
        "--max-connections",
        "connections",
        "Most connections of clients at once, or as many as open files allow; more get status 503.",
    ),
    (
        "--header-timeout",
        "header_seconds",
        "How long the headers of a request may take; then status 408.",
    ),
    ("--body-timeout", "body_seconds", "How long the body of a request may take; then status 408."),
    ("--max-calls", "calls", "Most turns that are sampled at once; further turns wait."),
    ("--max-idle", "idle_seconds", "How long an unused session is kept; then it is deleted."),
)
"""Options that are limits, the fields of `GatewayLimits` that they set, and what they limit."""


@attrs.frozen(kw_only=True)
class ServeOptions:
    """The options of `tito serve`; see its `--help`."""

    engine: str
    base_url: str | None
    model: str | None
    api_key: str | None
    vocab_size: int | None
    timeout: float
    family: Path | None
    fast: bool
    seed: int
    host: str
    port: int
    store: str
    durable: bool
    keys: Path | None
    share_keys: bool
    trusted_host: tuple[str, ...]
    forgive: tuple[str, ...]
    strip_system: tuple[str, ...]
    ignore: tuple[str, ...]
    strict: bool
    special_tokens: str | None
    truncated: str
    odd_stop: str
    on_abort: str
    on_other_text: str | None
    tools_when_tool_choice_none: str | None
    check_every: int
    sampling_masks: bool
    wire: str
    one_sample: bool
    drain: int
    verbose: bool
    log_level: str
    access_log: bool
    fetch_images: bool
    spans: str
    limits: GatewayLimits
    loaded: Family | None = None

    def alike(self, kind: type[attrs.AttrsInstance]) -> dict[str, Any]:
        """Return the values of options that another class has under the same name."""
        names = {one.name for one in attrs.fields(kind)} & {one.name for one in attrs.fields(type(self))}
        return {name: getattr(self, name) for name in names}

    def unused(self, family: Family | None) -> Iterator[str]:
        """Yield an error text for each option that has no effect beside the others."""
        if self.durable and not self.store.startswith("sqlite:"):
            yield "--durable is about the file of --store sqlite:PATH; leave it out, or name such a store"
        if self.share_keys and self.keys is not None:
            yield "--share-keys: with --keys no API key names a session; leave one of them out"
        if self.fast and self.family is None and self.loaded is None:
            yield shared.FAST_WITHOUT_FAMILY
        if self.on_other_text and family is None:
            yield (
                f"--on-other-text {self.on_other_text}: without the model's folder no text is compared; give "
                "--family or --gguf, or leave it out"
            )
        if self.special_tokens and family is None:
            yield (
                f"--special-tokens {self.special_tokens}: without the model's folder the engine alone reads "
                "what is spelled; give --family or --gguf, or leave it out"
            )


def _option(flag: str, default: Any, meaning: str, *name: str, **more: Any) -> Callable[[F], F]:
    """Return an option whose default `--help` shows."""
    return click.option(flag, *name, default=default, show_default=True, help=meaning, **more)


def _flag(flag: str, meaning: str) -> Callable[[F], F]:
    """Return an option without a value."""
    return click.option(flag, is_flag=True, help=meaning)


def _choice(
    flag: str, words: Mapping[str, str], meaning: str, *ending: str, default: str | None = None
) -> Callable[[F], F]:
    """Return an option that takes one of `words`; `ending` says what holds without a default."""
    text = " ".join((meaning, shared.choices(words), *ending))
    return _option(flag, default, text, type=click.Choice(list(words)))


def _several(flag: str, metavar: str, meaning: str) -> Callable[[F], F]:
    """Return an option with any number of values."""
    text = f"{meaning} May be given more than once. Default: none."
    return click.option(flag, multiple=True, metavar=metavar, help=text)


def _limits(command: F) -> F:
    """Add the `LIMIT_OPTIONS`. The name of a field says its unit; bytes are given in MiB."""
    for flag, field, meaning in reversed(LIMIT_OPTIONS):
        command = _limit(flag, field, meaning, getattr(LIMITS, field))(command)
    return command


def _limit(flag: str, field: str, meaning: str, default: float) -> Callable[[F], F]:
    if field.endswith("_seconds"):
        return _option(flag, default, meaning, field, type=shared.FiniteRange(0.1), metavar="SECONDS")
    unit, metavar = (MIB, "MIB") if field.endswith("_bytes") else (1, "COUNT")
    scaled = partial(_scaled, unit)
    kind = shared.WholeRange(1)
    return _option(flag, int(default) // unit, meaning, field, type=kind, metavar=metavar, callback=scaled)


def _scaled(unit: int, _: object, __: object, value: int) -> int:
    return value * unit


@click.command(cls=TopicCommand, topics=TOPICS, epilog=STATUSES, context_settings=shared.HELP_NAMES)
@shared.engine
@shared.base_url
@gguf_options
@shared.model
@shared.api_key
@shared.vocab_size
@shared.timeout
@shared.family_option(
    "The model. With it, prompts are rendered here, special-token text is read as plain "
    "letters, and pages show texts of ids. Default: the embedded engine has its own; others have none."
)
@shared.fast
@shared.seed
@_option(
    "--host",
    "127.0.0.1",
    "Address to listen on; 0.0.0.0 for every network of this machine.",
    metavar="ADDRESS",
)
@_option("--port", 8010, "Port to listen on; 0 for any free port.", type=shared.WholeRange(0, 65535))
@_option(
    "--store",
    "sqlite:tito-sessions.db",
    f"Where sessions are kept. {shared.choices(STORES)}",
    metavar="memory|sqlite:PATH|redis://...",
)
@_flag(
    "--durable",
    "Let SQLite wait for the disk at every turn, so that turns survive a power cut. Default: off; turns "
    "survive the end of the process.",
)
@click.option(
    "--keys",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="File of API keys that clients must send, one per line. A session's id is a key to that session. "
    "A session belongs to the key that opened it. Default: clients need no key.",
)
@_flag(
    "--share-keys",
    "Give all agents with the same API key one session. Default: off; agents that name a session of "
    "their own (Claude Code, Codex, opencode) get one each.",
)
@_several(
    "--trusted-host",
    "NAME",
    "Host name by which clients or web pages may call the gateway, beside IP addresses, localhost, "
    "--host and the machine's name; '*' for any.",
)
@_option(
    "--forgive",
    ("default",),
    f"Client rewrite to ignore when matching history. May be given more than once. {shared.choices(FORGIVE)}",
    multiple=True,
    metavar="NAME",
)
@_several("--strip-system", "REGEX", "Regular expression; its matches are removed from system texts.")
@_several("--ignore", "FIELD", "Request field that is accepted without effect, even if it would be refused.")
@_flag(
    "--strict",
    "Refuse request fields and tools that have no effect here, and history in other forms. Default: "
    "they are accepted, counted in /metrics and logged once by name.",
)
@_choice(
    "--special-tokens",
    SPECIAL_TOKENS,
    "How special-token text of users or tools is read; needs --family, or the embedded engine.",
    "Default: text; where neither is given, the engine decides.",
)
@truncated
@odd_stop
@shared.on_abort("raise", "resume")
@_choice(
    "--on-other-text",
    OTHER_TEXT,
    "What happens to a turn whose text is not that of its ids; needs --family, or the embedded engine.",
    "Default: notice; where neither is given, no text is compared.",
)
@_choice(
    "--tools-when-tool-choice-none",
    FORBIDDEN_TOOLS,
    "What happens to the tools in a prompt whose request forbids calls. No call is read from the answer.",
    "Default: as the engine's server does it, keep with vLLM, LMDeploy, TensorRT-LLM, llama.cpp and the "
    "embedded engine, exclude with others.",
)
@shared.check_every
@shared.sampling_masks
@_choice("--wire", WIRES, "Generation of Miles' session protocol.", default="later")
@_flag(
    "--one-sample",
    "Return one sample for a session, of the path to its newest turn, as version 1 of Miles' server "
    "does. Default: off; one for each path.",
)
@_option(
    "--drain",
    30,
    "How long turns in flight may take after a signal.",
    type=shared.WholeRange(0),
    metavar="SECONDS",
)
@click.option("-v", "--verbose", is_flag=True, help="Log a line per turn: --log-level info. Default: off.")
@_choice("--log-level", LEVELS, "What is logged to stderr.", default="warning")
@_flag(
    "--access-log",
    "Log a line per request to stderr: method, path, status, milliseconds and session, of each id the "
    "first 8 characters. Default: off.",
)
@_flag(
    "--fetch-images",
    "Fetch images that clients name by address, from public addresses alone, each once a session. "
    "Default: off; such images go by messages, and the engine decides.",
)
@_choice(
    "--spans",
    SPANS,
    "OpenTelemetry spans, sent as its environment variables such as OTEL_EXPORTER_OTLP_ENDPOINT say.",
    default="off",
)
@_limits
def serve(**given: Any) -> None:
    """Serve token-exact rollouts to agents that send messages.

    Agents need only a base URL. POST /sessions opens a session, whose base URL is
    http://HOST:PORT/sessions/ID/v1 for OpenAI's clients, and the same without /v1 for Anthropic's and
    Google's. The gateway's URL is the first line on stdout.
    """
    limits = GatewayLimits(**{field: given.pop(field) for _, field, _ in LIMIT_OPTIONS})
    try:
        settings = taken_settings(given)
        sys.exit(_run(settings, ServeOptions(limits=limits, **given)))
    except (EngineError, StoreError) as error:
        fail(error, BAD_INPUT if isinstance(error, UnsupportedError) else ENGINE_FAILED)
    except TitoError as error:
        fail(error, BAD_INPUT)


def _run(settings: ServerSettings | None, options: ServeOptions) -> int:
    """Serve, with an engine of its own if there are settings for one; return the exit status."""
    check_address(options.host, options.port)  # before an engine is started, and a store written
    if settings is None:
        return anyio.run(_serve, options)
    with local_engine(
        settings, family=options.family, fast=options.fast, check_every=options.check_every
    ) as named:
        return anyio.run(_serve, attrs.evolve(options, **named))


async def _serve(options: ServeOptions) -> int:
    bounds = ConnectionBounds.of(options.limits, raise_open_files())
    gateway = await gateway_of(options)
    from .logs import configure_logs  # noqa: PLC0415  # the server's libraries are an extra
    from .server import serve  # noqa: PLC0415  # likewise

    verbose = options.verbose and options.log_level != "debug"
    configure_logs("info" if verbose else options.log_level, access=options.access_log)
    model = gateway.turns.model

    def announce(url: str) -> None:
        click.echo("\n".join(greeting(options, model, url, bounds.text())))

    await serve(
        gateway,
        announce,
        host=options.host,
        port=options.port,
        drain_seconds=options.drain,
        bounds=bounds,
    )
    return 0


def greeting(options: ServeOptions, model: str, url: str, clients: str) -> Iterator[str]:
    """Yield the lines that are printed at the start; the first is the URL alone, for programs."""
    local = options.store.startswith(("memory", "sqlite:"))
    store = options.store if local else public_url(options.store)
    engine = "in this process" if options.base_url is None else f"at {public_url(options.base_url)}"
    yield url
    yield f"  engine     {options.engine} {engine}"
    yield f"  model      {visible(model) or 'not known yet: the engine does not answer'}"
    yield f"  store      {visible(store)}{', sessions end with the process' * (store == 'memory')}"
    yield f"  keys       {'not needed' if options.keys is None else f'from {visible(str(options.keys))}'}"
    yield f"  clients    {clients}"
    yield f"  session    POST {url}/sessions gives its ID; then point agents to"
    yield f"  OpenAI     base URL {url}/sessions/ID/v1"
    yield f"  Anthropic  base URL {url}/sessions/ID, also for Google's clients"
    yield f"  stop       Ctrl-C or SIGTERM; turns in flight get {options.drain} s; Ctrl-C twice stops at once"


def public_url(url: str) -> str:
    """Return a URL without its user name, password and query.

    >>> public_url("redis://:secret@127.0.0.1:6379/0?password=x")
    'redis://127.0.0.1:6379/0'
    """
    parts = urlsplit(url)
    return visible(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl())


async def gateway_of(options: ServeOptions) -> Gateway:
    """Return the gateway that options describe; raises `TitoError` if they are wrong or the store fails."""
    try:
        from .backend import Backend  # noqa: PLC0415  # the server's libraries are an extra
        from .gateway import GatewayOptions, build_gateway  # noqa: PLC0415  # likewise
        from .origins import TrustedNames  # noqa: PLC0415  # likewise
    except ImportError as error:
        raise InputError(missing(str(error.name))) from None
    family = _family(options)
    for text in options.unused(family):
        raise InputError(text)
    named = family if options.family or options.loaded else None
    given = {**options.alike(EngineOptions), "family": named, "for_agents": True}
    engine = make_engine(options.engine, EngineOptions(**given))
    tools = options.tools_when_tool_choice_none
    different = {
        "forgive": parse_rules(options.forgive),
        "keys": _keys(options.keys),
        "on_other_text": options.on_other_text or "notice",
        "ignore": frozenset(options.ignore),
        "keep_forbidden_tools": None if tools is None else tools == "keep",
        "spans": _spans(options.spans),
    }
    choices = GatewayOptions(
        policy=policy_of(truncated=options.truncated, odd_stop=options.odd_stop),
        guarded=options.special_tokens != "keep",
        trusted_hosts=options.trusted_host,
        later_wire=options.wire == "later",
        **{**options.alike(GatewayOptions), **different},
    )
    # The engine may be waited for, and the store may be in use: what is misspelt is said before.
    NoiseFilter(strip_system=options.strip_system)
    TrustedNames.of(options.host, options.trusted_host)
    model = await _model(engine, options)
    if options.sampling_masks and model:
        await _check_masks(engine)
    store = open_store(options.store, idle_seconds=options.limits.idle_seconds, durable=options.durable)
    try:
        await store.check()
    except StoreError:
        await store.aclose()
        raise
    url = options.base_url
    backend = None if url is None else Backend.to(url, api_key=options.api_key)
    return build_gateway(engine, store, model=model, family=family, options=choices, backend=backend)


def _family(options: ServeOptions) -> Family | None:
    if options.loaded is not None:
        return options.loaded
    if options.family is not None:
        return shared.load_family(options.family, fast=options.fast, check_every=options.check_every)
    if options.engine != "embedded":
        return None
    from tito_io.embedded import family  # noqa: PLC0415  # training its tokenizer takes a moment

    return family()


async def _model(engine: Engine, options: ServeOptions) -> str:
    """Return the model's name; "", with a warning, where the engine must be asked and does not answer yet."""
    from .turns import served_model  # noqa: PLC0415  # the server's libraries are an extra

    try:
        return options.model or await served_model(engine)
    except (UnreachableError, ServerError) as error:
        text = error_text(error)
        complain(f"{text}. Serving all the same: requests for turns are answered once it is there")
        return ""


async def _check_masks(engine: Engine) -> None:
    """Raise `MasksUnsupportedError` where the engine was started without sampling masks."""
    try:
        await engine.check_masks(Sampling(sampling_masks=True))
    except EngineError:
        await engine.aclose()
        raise


def _spans(chosen: str) -> TurnSpans | None:
    if chosen == "off":
        return None
    from .spans import TurnSpans  # noqa: PLC0415  # the server's libraries are an extra

    return TurnSpans.from_environment(with_ids=chosen == "ids")


def _keys(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"--keys {path}: is no UTF-8 text, at byte {error.start}") from None
    keys = {place: line.strip() for place, line in enumerate(text.splitlines(), 1) if line.strip()}
    for place, key in keys.items():
        why = _key_fault(key)
        if why is not None:
            raise InputError(f"--keys {path}: line {place} {why}")
    if not keys:
        raise InputError(f"--keys {path}: there is no key in it; put one key on each line")
    return tuple(keys.values())


def _key_fault(key: str) -> str | None:
    """Return why no client could send a key, or why it is hardly meant as one; None for a right one."""
    from .auth import LONGEST  # noqa: PLC0415  # the server's libraries are an extra

    if not (key.isascii() and key.isprintable()):
        return "has characters that no header carries; use ASCII"
    if key.startswith("#") or " " in key:
        return "is no key: comments and spaces are not taken; put one key on each line"
    if len(key) > LONGEST:
        return f"has {len(key)} characters, and a key has at most {LONGEST}"
    return None
