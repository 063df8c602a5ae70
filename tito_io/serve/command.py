"""The `tito serve` command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import attrs
import click

from tito_core import InputError, OddStop, Policy, TitoError, Truncated
from tito_io.cli.errors import BAD_INPUT, ENGINE_FAILED, complain, error_text, fail
from tito_io.cli.options import WholeRange
from tito_io.engines.protocol import Engine, EngineError, ServerError, UnreachableError
from tito_io.engines.registry import ENGINES, Address, chosen
from tito_io.extras import missing
from tito_io.families.family import Family

from .limits import MIB, Caps
from .model_name import named_by
from .store import Store, StoreError

if TYPE_CHECKING:
    from .backend import Backend
    from .gateway import Gateway

STATUSES = """\b
Exit status:
  0  it was told to stop, and ended what was in flight
  2  bad input: options, store, model folder
  3  the engine or the store failed at the start; an engine that is not there yet is waited for
130  it was interrupted before it listened
"""
CAPS = Caps()


@attrs.frozen(kw_only=True)
class ServeOptions:
    """What `tito serve` was asked to do."""

    engine: str
    base_url: str | None
    model: str | None
    api_key: str | None
    vocab_size: int | None
    family: Path | None
    seed: int
    host: str
    port: int
    store: str
    durable: bool
    keys: Path | None
    forgive: tuple[str, ...]
    strip_system: tuple[str, ...]
    ignore: tuple[str, ...]
    special_tokens: str | None
    truncated: str
    odd_stop: str
    wire: str
    drain: int
    caps: Caps


@click.command(epilog=STATUSES)
@click.option(
    "--engine",
    type=click.Choice(list(ENGINES)),
    default="embedded",
    show_default=True,
    help="Who samples. The embedded engine babbles, and needs no server.",
)
@click.option("--base-url", help="Where the engine listens, such as http://127.0.0.1:8000.")
@click.option("--model", help="The model's name; asked of the engine where it serves just one.")
@click.option("--api-key", envvar="TITO_API_KEY", help="The engine's. [env: TITO_API_KEY]")
@click.option("--vocab-size", type=WholeRange(1), help="How many ids, where SGLang does not say.")
@click.option("--family", type=click.Path(path_type=Path), help="The model's folder, to render with here.")
@click.option("--seed", type=WholeRange(0, 2**63 - 1), default=0, help="The embedded engine's.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0: everywhere.")
@click.option("--port", type=WholeRange(0, 65535), default=8010, show_default=True, help="0: any free.")
@click.option(
    "--store",
    default="sqlite:tito-sessions.db",
    show_default=True,
    help="memory, sqlite:PATH, or redis://HOST:PORT where several gateways serve one fleet.",
)
@click.option("--durable", is_flag=True, help="SQLite waits for the disk: turns survive a power cut too.")
@click.option(
    "--keys",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of API keys, one a line. A session's id is a key to that session. Default: no keys.",
)
@click.option(
    "--forgive",
    multiple=True,
    default=("default",),
    help="Client noise that makes no branch; may be given more than once: cache-control, billing-header, "
    "text-parts, developer, dropped-reasoning (these five: default), renamed-tool-ids, "
    "trailing-whitespace, none.",
)
@click.option("--strip-system", multiple=True, help="A regular expression, left out of system texts.")
@click.option("--ignore", multiple=True, help="A request field that is accepted without effect.")
@click.option(
    "--special-tokens",
    type=click.Choice(["text", "keep"]),
    show_default="text with --family",
    help="What users and tools spell like a special token: its letters, or the token. Needs a family.",
)
@click.option(
    "--truncated",
    type=click.Choice(["close", "refuse"]),
    default="close",
    show_default=True,
    help="What follows a turn that was cut short: its close, untrained, or a prompt by messages.",
)
@click.option(
    "--odd-stop",
    type=click.Choice(["refuse", "replace", "keep"]),
    default="keep",
    show_default=True,
    help="What follows a stop that the template would not write: a prompt by messages, the template's own "
    "stop in its place, or the bridge after it.",
)
@click.option(
    "--wire",
    type=click.Choice(["later", "older"]),
    default="later",
    show_default=True,
    help="Which generation of the session protocol.",
)
@click.option("--drain", type=WholeRange(0), default=30, show_default=True, help="Seconds, on SIGTERM.")
@click.option(
    "--max-body",
    type=WholeRange(1),
    default=CAPS.body_bytes // MIB,
    show_default=True,
    help="MiB of one request's body; more is refused with 413.",
)
@click.option(
    "--max-turns",
    type=WholeRange(1),
    default=CAPS.turns,
    show_default=True,
    help="Assistant messages in one prompt; more are refused with 429, as by the next three.",
)
@click.option(
    "--max-nodes",
    type=WholeRange(1),
    default=CAPS.nodes,
    show_default=True,
    help="Turns of one session, those of all its branches.",
)
@click.option(
    "--max-tokens",
    type=WholeRange(1),
    default=CAPS.tokens,
    show_default=True,
    help="Token ids that one session keeps, shared ones counted once.",
)
@click.option(
    "--max-sessions",
    type=WholeRange(1),
    default=CAPS.sessions,
    show_default=True,
    help="Sessions in the store.",
)
@click.option(
    "--max-idle",
    type=click.FloatRange(0.1),
    default=CAPS.idle_seconds,
    show_default=True,
    help="Seconds that a session is kept while nobody uses it; then it is deleted.",
)
@click.option(
    "--max-calls",
    type=WholeRange(1),
    default=CAPS.calls,
    show_default=True,
    help="Turns sampled at once; further ones wait for a place, and none is refused.",
)
def serve(**given: Any) -> None:
    """Serve agents that know only messages: they get a base URL, and their rollout is token-exact.

    POST /sessions opens a session; its base URL is http://HOST:PORT/sessions/ID/v1 for OpenAI's clients, and
    the same without /v1 for Anthropic's.
    """
    try:
        sys.exit(anyio.run(_serve, _options(given)))
    except (EngineError, StoreError) as error:
        fail(error, ENGINE_FAILED)
    except TitoError as error:
        fail(error, BAD_INPUT)


def _options(given: dict[str, Any]) -> ServeOptions:
    caps = Caps(
        body_bytes=given.pop("max_body") * MIB,
        turns=given.pop("max_turns"),
        nodes=given.pop("max_nodes"),
        tokens=given.pop("max_tokens"),
        sessions=given.pop("max_sessions"),
        idle_seconds=given.pop("max_idle"),
        calls=given.pop("max_calls"),
    )
    return ServeOptions(caps=caps, **given)


async def _serve(options: ServeOptions) -> int:
    from .server import Socket, serve  # noqa: PLC0415  # the server's libraries are an extra

    gateway = await gateway_of(options)
    socket = Socket(host=options.host, port=options.port, drain_seconds=options.drain)
    await serve(gateway, socket, click.echo)
    return 0


async def gateway_of(options: ServeOptions) -> Gateway:
    """Return the gateway that options describe."""
    try:
        from .build import Choices, made  # noqa: PLC0415  # likewise
        from .stores import opened  # noqa: PLC0415  # likewise
    except ImportError as error:
        raise InputError(missing(str(error.name))) from None
    from .client_noise import named  # noqa: PLC0415  # likewise

    family = _family(options)
    _demand(options, family)
    engine = chosen(options.engine, _address(options, family if options.family else None))
    choices = Choices(
        caps=options.caps,
        forgive=named(options.forgive),
        strip_system=options.strip_system,
        policy=Policy(
            truncated=Truncated[options.truncated.upper()], odd_stop=OddStop[options.odd_stop.upper()]
        ),
        guarded=options.special_tokens != "keep",
        keys=_keys(options.keys),
        ignoring=frozenset(options.ignore),
        later_wire=options.wire == "later",
    )
    model = await _model(engine, options)
    store = opened(options.store, idle_seconds=options.caps.idle_seconds, durable=options.durable)
    await _check(store)
    return made(engine, store, model=model, family=family, choices=choices, backend=_backend(options))


def _demand(options: ServeOptions, family: Family | None) -> None:
    """Refuse options that would have no effect beside the others."""
    if options.durable and not options.store.startswith("sqlite:"):
        raise InputError(
            "--durable is about the file of --store sqlite:PATH; leave it out, or name such a store"
        )
    if options.special_tokens and family is None:
        raise InputError(
            f"--special-tokens {options.special_tokens}: without the model's folder the engine alone reads "
            "what is spelled; give --family, or leave it out"
        )


async def _check(store: Store) -> None:
    """Demand that the store answers."""
    try:
        await store.check()
    except StoreError:
        await store.aclose()
        raise


def _family(options: ServeOptions) -> Family | None:
    if options.family is not None:
        return Family.load(options.family)
    if options.engine != "embedded":
        return None
    from tito_io.embedded import family  # noqa: PLC0415  # training its tokenizer takes a moment

    return family()


def _address(options: ServeOptions, family: Family | None) -> Address:
    return Address(
        base_url=options.base_url,
        model=options.model,
        api_key=options.api_key,
        family=family,
        vocab_size=options.vocab_size,
        seed=options.seed,
    )


async def _model(engine: Engine, options: ServeOptions) -> str:
    """Return the model's name, asked of engines that tell; "" where one is not there yet, which is told."""
    try:
        return options.model or await named_by(engine)
    except (UnreachableError, ServerError) as error:
        complain(f"{error_text(error)}. Serving all the same: requests for turns are answered once it is there")
        return ""


def _keys(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    keys = tuple(line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip())
    if not keys:
        raise InputError(f"--keys {path}: there is no key in it")
    return keys


def _backend(options: ServeOptions) -> Backend | None:
    from .backend import Backend  # noqa: PLC0415  # likewise

    if options.base_url is None or options.engine == "embedded":
        return None
    return Backend.to(options.base_url, api_key=options.api_key)
