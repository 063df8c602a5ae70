"""`tito rollout`: a conversation with an engine, every sampled id accounted for."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import attrs
import click
import orjson
from rich.live import Live
from rich.table import Table

from tito_core import InputError, OddStop, Policy, TitoError, TokenizeError, Truncated
from tito_io.cli.console import Console
from tito_io.cli.errors import BAD_INPUT, ENGINE_FAILED, complain, error_text
from tito_io.cli.options import FiniteRange, WholeRange
from tito_io.client.conversation import ClientTurn, Conversation
from tito_io.client.driver import InThread
from tito_io.engines.protocol import Engine, EngineError, OverlongError, Rendering, Sampling
from tito_io.engines.registry import ENGINES, Address, chosen
from tito_io.families.family import Family

from .report import table, verdict
from .run import Rollout, RolloutTurn, to_json
from .script import default_script, load

LOST, FULL = 1, 4
INTERRUPTED = "interrupted"
"""What stopped a rollout that was interrupted, as its summary says it."""
STATUSES = """\b
Exit status:
  0    every sampled id survived in every later prompt
  1    sampled ids were lost: a prompt went by messages and came back changed
  2    bad input: options, script, model folder; or the output could not be written
  3    engine trouble: unreachable, refused, or an answer that breaks its own counts
  4    the context was full before the last turn; the turns until then are told
  130  interrupted; the turns until then are told
"""


def _choice(kind: type[OddStop | Truncated]) -> click.Choice[str]:
    return click.Choice([member.name.lower() for member in kind])


@attrs.frozen(kw_only=True)
class RolloutOptions:
    """What `tito rollout` was asked to do."""

    engine: str
    base_url: str | None
    model: str | None
    api_key: str | None
    family: Path | None
    script: Path | None
    turns: int | None
    max_tokens: int
    temperature: float
    seed: int
    truncated: str
    odd_stop: str
    vocab_size: int | None
    check_every: int
    compare: bool
    calls: Path | None
    as_json: bool

    @property
    def policy(self) -> Policy:
        """The kernel's choices."""
        return Policy(truncated=Truncated[self.truncated.upper()], odd_stop=OddStop[self.odd_stop.upper()])


@click.command(epilog=STATUSES)
@click.option("--engine", type=click.Choice(list(ENGINES)), default="embedded", show_default=True)
@click.option("--base-url", help="Where the engine listens, such as http://127.0.0.1:8000.")
@click.option("--model", help="The model's name; asked of the engine where it serves just one.")
@click.option("--api-key", envvar="TITO_API_KEY", help="Sent as a bearer token. [env: TITO_API_KEY]")
@click.option("--vocab-size", type=WholeRange(1), help="How many ids there are, where SGLang does not say.")
@click.option("--family", type=click.Path(path_type=Path), help="A model folder to render with locally.")
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    help='What the world says, a JSON object a line: {"user": "Hello."}, and "tool" beside it for the result '
    "of each call, where the model made any; calls without one get `done`, and the user's text after it. The "
    'first line may hold "system" and "tools", alone or with its text. At its end the script begins again '
    "with its first text.",
)
@click.option("--turns", type=WholeRange(1), help="How many turns; one a script line by default.")
@click.option(
    "--max-tokens",
    type=WholeRange(1, 2**31 - 1),
    default=256,
    show_default=True,
    help="The most ids that a turn samples.",
)
@click.option("--temperature", type=FiniteRange(0, 100), default=1.0, show_default=True)
@click.option("--seed", type=WholeRange(0, 2**63 - 1), default=0, show_default=True)
@click.option(
    "--truncated",
    type=_choice(Truncated),
    default="close",
    show_default=True,
    help="What follows a turn that was cut short: its close, untrained, or a fallback to messages.",
)
@click.option(
    "--odd-stop",
    type=_choice(OddStop),
    default="keep",
    show_default=True,
    help="What follows a stop that is not the template's close. `refuse` is the kernel's own default; "
    "`keep` loses nothing that was sampled.",
)
@click.option(
    "--check-every",
    type=WholeRange(0),
    default=0,
    help="Compare the bridge of every n-th turn with a render of the whole conversation, and send it by "
    "messages where they differ; 0 for never.",
)
@click.option("--compare/--no-compare", default=True, help="Render each prompt afresh to show the drift.")
@click.option(
    "--calls",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file to write every call to, ids and all, for `tito samples` and `tito audit`.",
)
@click.option("--json", "as_json", is_flag=True, help="One object a turn, then a summary object.")
def rollout(**given: Any) -> None:
    """Run a many-turn conversation with tools and account for every sampled id.

    Without options it runs the embedded engine, which is a seeded sampler and not a language model.
    """
    try:
        sys.exit(anyio.run(_rollout, RolloutOptions(**given)))
    except TitoError as error:
        complain(_ended(error, 0))
        sys.exit(_status_of(error))


def _status_of(error: TitoError) -> int:
    """Return the exit status of a rollout that an error ended."""
    if isinstance(error, OverlongError):
        return FULL
    return ENGINE_FAILED if isinstance(error, EngineError | TokenizeError) else BAD_INPUT


def _ended(error: TitoError, turns: int) -> str:
    """Say why a rollout ended after some turns."""
    if not isinstance(error, OverlongError):
        return error_text(error)
    if not turns:
        return f"the first prompt and its answer of --max-tokens do not fit the context: {error_text(error)}"
    full = f"the context is full after {turns} turn{'s' * (turns != 1)}"
    return f"{full}; ask for fewer with --turns, or for shorter ones with --max-tokens: {error_text(error)}"


async def _rollout(options: RolloutOptions) -> int:
    script = load(options.script) if options.script else default_script()
    family = Family.load(options.family) if options.family else None
    address = Address(
        base_url=options.base_url,
        model=options.model,
        api_key=options.api_key,
        family=family,
        vocab_size=options.vocab_size,
        seed=options.seed,
    )
    async with _opened(chosen(options.engine, address)) as engine:
        conversation = Conversation(
            engine=engine,
            rendering=Rendering(tools=script.tools),
            sampling=Sampling(
                max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed
            ),
            policy=options.policy,
            tokenize_fn=InThread(family.tokenize_fn(tools=script.tools or None)) if family else None,
            stop_ids=family.stop_ids if family else (),
            check_every=options.check_every,
        )
        run = Rollout(conversation, script, options.turns or len(script.lines), compare=options.compare)
        show = _print_json if options.as_json else _print_table
        with _kept(run, options.calls):
            return await show(run, engine.name)


@contextmanager
def _kept(run: Rollout, path: Path | None) -> Iterator[None]:
    """Write the rollout's calls to a file, if one is named."""
    if path is None:
        yield
        return
    from tito_io.samples.forms.tito import CallFile  # noqa: PLC0415  # its readers know every engine's replies

    def keep(turn: ClientTurn) -> None:
        try:
            calls.add(turn)
        except OSError as error:
            with suppress(OSError):  # what it still holds cannot be written either
                calls.__exit__(None, None, None)
            raise InputError(f"--calls {path}: cannot be written: {error.strerror}") from error

    with CallFile(path) as calls:
        run.told = keep
        yield


@asynccontextmanager
async def _opened(engine: Engine) -> AsyncIterator[Engine]:
    try:
        yield engine
    finally:
        await engine.aclose()


async def _each(run: Rollout, show: Callable[[RolloutTurn], None]) -> TitoError | None:
    """Show every row as it comes; return what stopped the rollout, if anything did."""
    try:
        async for row in run.run():
            show(row)
    except TitoError as error:
        return error
    return None


async def _print_json(run: Rollout, _: str) -> int:
    with _interruptible(lambda: _line(_summary(run, INTERRUPTED))):
        error = await _each(run, lambda row: _line(to_json(row)))
    _line(_summary(run, _why(run, error)))
    if error is not None:
        complain(_ended(error, len(run.rows)))
    return _status(run, error)


@contextmanager
def _interruptible(close: Callable[[], None]) -> Iterator[None]:
    """Tell what there is when a rollout is interrupted, and let the interrupt go on."""
    try:
        yield
    except anyio.get_cancelled_exc_class():
        close()
        raise


def _summary(run: Rollout, error: str | None) -> Mapping[str, Any]:
    return {"summary": attrs.asdict(run.summary(error))}


def _line(data: Any) -> None:
    click.echo(orjson.dumps(data).decode())


async def _print_table(run: Rollout, name: str) -> int:
    console = Console()
    redrawn = console.is_terminal and console.roomy

    def close(error: str | None) -> None:
        if not redrawn:
            console.print(_table(console, run, name))
        console.print(verdict(run.summary(error)), soft_wrap=True)

    with _interruptible(lambda: close(INTERRUPTED) if run.rows else None):
        if redrawn:
            with Live(console=console, auto_refresh=False) as live:
                error = await _each(run, lambda _: live.update(_table(console, run, name), refresh=True))
        else:
            error = await _each(run, lambda _: None)
    if error is not None and not run.rows:
        raise error
    close(_why(run, error))
    return _status(run, error)


def _table(console: Console, run: Rollout, name: str) -> Table:
    return table(run.rows, name, console.width)


def _why(run: Rollout, error: TitoError | None) -> str | None:
    return None if error is None else _ended(error, len(run.rows))


def _status(run: Rollout, error: TitoError | None) -> int:
    if error is not None:
        return _status_of(error)
    return 0 if run.summary().whole else LOST
