"""The `tito serve` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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
from tito_io.engines.aborted_turns import as_on_abort
from tito_io.engines.protocol import Engine, EngineError, ServerError, UnreachableError
from tito_io.engines.registry import EngineOptions, make_engine
from tito_io.extras import missing
from tito_io.families.family import Family
from tito_io.llamacpp_server.command import gguf_options, local_engine, taken_settings
from tito_io.llamacpp_server.settings import ServerSettings

from .bounds import ConnectionBounds, raise_open_files
from .client_noise import NoiseFilter, NoiseRule, option_name, parse_rules
from .refusals import MIB, GatewayLimits
from .store import StoreError, open_store

if TYPE_CHECKING:
    from .gateway import Gateway
    from .spans import TurnSpans

F = TypeVar("F", bound=Callable[..., Any])
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
SPECIAL_TOKENS = {"text": "read it as its letters", "keep": "read it as the token"}
OTHER_TEXT = {"notice": "count and log it", "raise": "an error; the turn is not kept"}
SPANS = {
    "off": "none",
    "turns": "one for each turn",
    "ids": "with the ids that each turn adds",
}
WIRES = {
    "later": "fields only where asked for",
    "older": "meta_info in every answer, errors as Miles has them",
}


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
    check_every: int
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


def _option(flag: str, default: Any, help: str, **more: Any) -> Callable[[F], F]:  # noqa: A002  # click's name
    """Return an option whose default `--help` shows."""
    return click.option(flag, default=default, show_default=True, help=help, **more)


def _limit(flag: str, default: int, help: str, metavar: str = "COUNT") -> Callable[[F], F]:  # noqa: A002  # likewise
    """Return an option that is a number of at least 1."""
    return _option(flag, default, help, type=shared.WholeRange(1), metavar=metavar)


@click.command(epilog=STATUSES, context_settings=shared.HELP_NAMES)
@shared.engine
@shared.base_url
@gguf_options
@shared.model
@shared.api_key
@shared.vocab_size
@shared.timeout
@shared.family_option(
    "Model folder, or GGUF file. With it, prompts are rendered here, spelled special tokens are read as "
    "text, and pages show texts of ids. Default: the embedded engine has its own; others have none."
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
@click.option(
    "--durable",
    is_flag=True,
    help="Let SQLite wait for the disk at every turn, so that turns survive a power cut. Default: off; turns "
    "survive the end of the process.",
)
@click.option(
    "--keys",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="File of API keys that clients must send, one per line. A session's id is a key to that session. "
    "A session belongs to the key that opened it. Default: clients need no key.",
)
@click.option(
    "--share-keys",
    is_flag=True,
    help="Give all agents with the same API key one session. Default: off; agents that name a session of "
    "their own (Claude Code, Codex, opencode) get one each.",
)
@click.option(
    "--trusted-host",
    multiple=True,
    metavar="NAME",
    help="Host name by which clients or web pages may call the gateway, beside IP addresses, localhost, "
    "--host and the machine's name; '*' for any. May be given more than once. Default: none.",
)
@_option(
    "--forgive",
    ("default",),
    f"Client rewrite to ignore when matching history. May be given more than once. {shared.choices(FORGIVE)}",
    multiple=True,
    metavar="NAME",
)
@click.option(
    "--strip-system",
    multiple=True,
    metavar="REGEX",
    help="Regular expression; its matches are removed from system texts. May be given more than once. "
    "Default: none.",
)
@click.option(
    "--ignore",
    multiple=True,
    metavar="FIELD",
    help="Request field that is accepted without effect, even if it would be refused. May be given more than "
    "once. Default: none.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Refuse request fields and tools that have no effect here, and history in other forms. Default: "
    "they are accepted, counted in /metrics and logged once by name.",
)
@click.option(
    "--special-tokens",
    type=click.Choice(list(SPECIAL_TOKENS)),
    help="What happens where users or tools spell a special token; needs --family, or the embedded engine. "
    f"{shared.choices(SPECIAL_TOKENS)} Default: text; where neither is given, the engine decides.",
)
@truncated
@odd_stop
@shared.on_abort("raise", "resume")
@click.option(
    "--on-other-text",
    type=click.Choice(list(OTHER_TEXT)),
    help="What happens to a turn whose text is not that of its ids; needs --family, or the embedded engine. "
    f"{shared.choices(OTHER_TEXT)} Default: notice; where neither is given, no text is compared.",
)
@shared.check_every
@_option(
    "--wire",
    "later",
    f"Generation of Miles' session protocol. {shared.choices(WIRES)}",
    type=click.Choice(list(WIRES)),
)
@click.option(
    "--one-sample",
    is_flag=True,
    help="Return one sample for a session, of the path to its newest turn, as version 1 of Miles' server "
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
@_option(
    "--log-level",
    "warning",
    f"What is logged to stderr. {shared.choices(LEVELS)}",
    type=click.Choice(list(LEVELS)),
)
@click.option(
    "--access-log",
    is_flag=True,
    help="Log a line per request to stderr: method, path, status, milliseconds and session, of each id the "
    "first 8 characters. Default: off.",
)
@click.option(
    "--fetch-images",
    is_flag=True,
    help="Fetch images that clients name by address, from public addresses alone, each once a session. "
    "Default: off; such images go by messages, and the engine decides.",
)
@_option(
    "--spans",
    "off",
    "OpenTelemetry spans, sent as its environment variables such as OTEL_EXPORTER_OTLP_ENDPOINT say. "
    f"{shared.choices(SPANS)}",
    type=click.Choice(list(SPANS)),
)
@_limit("--max-body", LIMITS.body_bytes // MIB, "Longest request body; a longer one gets status 413.", "MIB")
@_limit(
    "--max-containers", LIMITS.containers, "Most lists and objects in a request body; more get status 429."
)
@_limit("--max-scalars", LIMITS.scalars, "Most keys and values in a request body; more get status 429.")
@_limit(
    "--max-messages",
    LIMITS.messages,
    "Most messages in a request, one of several parts counted as so many; more get status 429.",
)
@_limit("--max-turns", LIMITS.turns, "Most assistant messages in one prompt; more get status 429.")
@_limit("--max-nodes", LIMITS.nodes, "Most turns of a session, all branches together; more get status 429.")
@_limit("--max-tokens", LIMITS.tokens, "Most ids of a session, shared ids counted once; more get status 429.")
@_limit("--max-images", LIMITS.images, "Most images in one prompt; more get status 429.")
@_limit(
    "--max-media",
    LIMITS.media_bytes // MIB,
    "Most bytes of images of a session, each image counted once; more get status 429.",
    "MIB",
)
@_limit("--max-sessions", LIMITS.sessions, "Most sessions in the store; more get status 429.")
@_limit(
    "--max-connections",
    LIMITS.connections,
    "Most connections of clients at once, or as many as open files allow; more get status 503.",
)
@_option(
    "--header-timeout",
    LIMITS.header_seconds,
    "How long the headers of a request may take; then status 408.",
    type=shared.FiniteRange(0.1),
    metavar="SECONDS",
)
@_option(
    "--body-timeout",
    LIMITS.body_seconds,
    "How long the body of a request may take; then status 408.",
    type=shared.FiniteRange(0.1),
    metavar="SECONDS",
)
@_limit("--max-calls", LIMITS.calls, "Most turns that are sampled at once; further turns wait.")
@_option(
    "--max-idle",
    LIMITS.idle_seconds,
    "How long an unused session is kept; then it is deleted.",
    type=shared.FiniteRange(0.1),
    metavar="SECONDS",
)
def serve(**given: Any) -> None:
    """Serve token-exact rollouts to agents that send messages.

    Agents need only a base URL. POST /sessions opens a session, whose base URL is
    http://HOST:PORT/sessions/ID/v1 for OpenAI's clients, and the same without /v1 for Anthropic's and
    Google's. The gateway's URL is the first line on stdout.
    """
    limits = GatewayLimits(
        body_bytes=given.pop("max_body") * MIB,
        containers=given.pop("max_containers"),
        scalars=given.pop("max_scalars"),
        messages=given.pop("max_messages"),
        turns=given.pop("max_turns"),
        nodes=given.pop("max_nodes"),
        tokens=given.pop("max_tokens"),
        images=given.pop("max_images"),
        media_bytes=given.pop("max_media") * MIB,
        sessions=given.pop("max_sessions"),
        idle_seconds=given.pop("max_idle"),
        calls=given.pop("max_calls"),
        connections=given.pop("max_connections"),
        header_seconds=given.pop("header_timeout"),
        body_seconds=given.pop("body_timeout"),
    )
    try:
        settings = taken_settings(given)
        sys.exit(_run(settings, ServeOptions(limits=limits, **given)))
    except (EngineError, StoreError) as error:
        fail(error, ENGINE_FAILED)
    except TitoError as error:
        fail(error, BAD_INPUT)


def _run(settings: ServerSettings | None, options: ServeOptions) -> int:
    """Serve, with an engine of its own if there are settings for one; return the exit status."""
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
    address = EngineOptions(
        base_url=options.base_url,
        model=options.model,
        api_key=options.api_key,
        family=family if options.family or options.loaded else None,
        vocab_size=options.vocab_size,
        seed=options.seed,
        timeout=options.timeout,
    )
    engine = make_engine(options.engine, address)
    choices = GatewayOptions(
        limits=options.limits,
        forgive=parse_rules(options.forgive),
        strip_system=options.strip_system,
        policy=policy_of(truncated=options.truncated, odd_stop=options.odd_stop),
        guarded=options.special_tokens != "keep",
        on_abort=as_on_abort(options.on_abort),
        on_other_text=options.on_other_text or "notice",
        check_every=options.check_every,
        keys=_keys(options.keys),
        share_keys=options.share_keys,
        trusted_hosts=options.trusted_host,
        ignore=frozenset(options.ignore),
        strict=options.strict,
        one_sample=options.one_sample,
        later_wire=options.wire == "later",
        fetch_images=options.fetch_images,
        spans=_spans(options.spans),
    )
    # The engine may be waited for, and the store may be in use: what is misspelt is said before.
    NoiseFilter(strip_system=options.strip_system)
    TrustedNames.of(options.host, options.trusted_host)
    model = await _model(engine, options)
    store = open_store(options.store, idle_seconds=options.limits.idle_seconds, durable=options.durable)
    try:
        await store.check()
    except StoreError:
        await store.aclose()
        raise
    backend = None
    if options.base_url is not None:
        backend = Backend.to(options.base_url, api_key=options.api_key)
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
