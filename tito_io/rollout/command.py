"""The `tito rollout` command."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import click

from tito_core import InputError, TitoError, TokenizeError
from tito_io.cli import options
from tito_io.cli.errors import BAD_INPUT, ENGINE_FAILED, complain, error_text
from tito_io.cli.options import FiniteRange, WholeRange
from tito_io.cli.policy import odd_stop, policy_of, truncated
from tito_io.cli.process import output_may_close
from tito_io.cli.topics import TopicCommand
from tito_io.cli.waiting import waiting_reported
from tito_io.client.conversation import Conversation
from tito_io.client.driver import rendered_by
from tito_io.client.turn import ClientTurn
from tito_io.engines.aborted_turns import as_on_abort
from tito_io.engines.family_render import renders_as
from tito_io.engines.protocol import (
    Engine,
    EngineError,
    OverlongError,
    Rendering,
    Sampling,
    UnsupportedError,
)
from tito_io.engines.registry import EngineOptions, make_engine
from tito_io.engines.routing import new_request_id
from tito_io.engines.wire import root_of
from tito_io.families.family import Family
from tito_io.llamacpp_server.command import gguf_options, local_engine, taken_settings
from tito_io.llamacpp_server.settings import ServerSettings

from .report import Report, report_of
from .run import Rollout
from .script import default_script, load

LOST, FULL = 1, 4
LARGER = "for a larger context (with --gguf: --context)"
INTERRUPTED = "interrupted"
"""What ended a rollout that was interrupted, in its summary."""
TOPICS = {
    "The engine": "api-key vocab-size timeout fast check-every on-abort sampling-masks",
    "llama.cpp's server, started by --gguf": "context slots threads gpu-layers precise",
    "Sampling": "max-tokens temperature top-k top-p seed",
    "What follows a turn": "truncated odd-stop",
}
"""Options by topic; those in none stand first."""
STATUSES = """\b
Exit status:
  0    every sampled id stands unchanged in every later prompt
  1    sampled ids were lost: a prompt went by messages and came back changed
  2    bad input: options, script or model folder; or the output could not be written
  3    the engine failed: unreachable, refused, or an answer with inconsistent counts
  4    the context was full before the last turn; the turns until then are printed
  130  interrupted; the turns until then are printed
"""


@attrs.frozen(kw_only=True)
class RolloutOptions:
    """The options of `tito rollout`."""

    engine: str
    base_url: str | None
    model: str | None
    api_key: str | None
    vocab_size: int | None
    timeout: float
    family: Path | None
    fast: bool
    script: Path | None
    turns: int | None
    max_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int
    truncated: str
    odd_stop: str
    on_abort: str
    check_every: int
    sampling_masks: bool
    compare: bool
    calls: Path | None
    as_json: bool
    loaded: Family | None = None

    def loaded_family(self) -> Family | None:
        """Return the model folder, or what was read from a GGUF file, if there is one."""
        if self.loaded is not None:
            return self.loaded
        if self.family is not None:
            return options.load_family(self.family, fast=self.fast, check_every=self.check_every)
        if self.fast:
            raise InputError(options.FAST_WITHOUT_FAMILY)
        return None

    def address(self, family: Family | None) -> EngineOptions:
        """Return where the engine is."""
        return EngineOptions(
            base_url=self.base_url,
            model=self.model,
            api_key=self.api_key,
            family=family,
            vocab_size=self.vocab_size,
            seed=self.seed,
            timeout=self.timeout,
            sampling_masks=self.sampling_masks,
        )

    @property
    def sampling(self) -> Sampling:
        """How to sample."""
        given = {"top_k": self.top_k, "top_p": self.top_p}
        return Sampling(
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            seed=self.seed,
            conversation=new_request_id(),
            extra={name: value for name, value in given.items() if value is not None},
        )

    @property
    def waiting(self) -> Callable[[int], AbstractContextManager[object]]:
        """What reports a wait for a turn; nothing does for the embedded engine, which has no address."""
        if self.base_url is None:
            return nullcontext
        shown = str(root_of(self.base_url).copy_with(userinfo=b""))
        return partial(waiting_reported, self.timeout, shown)


@click.command(cls=TopicCommand, topics=TOPICS, epilog=STATUSES, context_settings=options.HELP_NAMES)
@options.engine
@options.base_url
@gguf_options
@options.model
@options.api_key
@options.vocab_size
@options.timeout
@options.family_option("The model to render with in this process. Default: the engine renders.")
@options.fast
@click.option(
    "--script",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help='JSON lines with the user\'s texts and tool results, such as {"user": "Hello."} or {"user": '
    '"Hello.", "tool": "12 kg"}. The text of "tool" answers each tool call, and "user" follows where the '
    'model called none. Without "tool", calls get the result "done", and "user" follows. The first line may '
    'hold "system" and "tools", alone or with texts. After the last line the first one follows. Default: a '
    "script with two tools that comes with tito.",
)
@click.option("--turns", type=WholeRange(1), help="Number of turns. Default: one for each script line.")
@click.option(
    "--max-tokens",
    type=WholeRange(1, 2**31 - 1),
    default=256,
    show_default=True,
    help="Most ids to sample in a turn.",
)
@click.option(
    "--temperature",
    type=FiniteRange(0, 100),
    default=1.0,
    show_default=True,
    help="Sampling temperature; 0 takes the likeliest id.",
)
@click.option(
    "--top-k",
    type=WholeRange(1, 2**31 - 1),
    metavar="COUNT",
    help="Sample among so many of the likeliest ids. Default: as the engine does.",
)
@click.option(
    "--top-p",
    type=FiniteRange(0, 1, min_open=True),
    metavar="NUMBER",
    help="Sample among the likeliest ids that have this probability together. Default: as the engine does.",
)
@options.seed
@truncated
@odd_stop
@options.on_abort("raise", "resume", "return")
@options.check_every
@options.sampling_masks
@click.option(
    "--compare/--no-compare",
    default=True,
    show_default=True,
    help="Render each prompt afresh and count the ids that would have changed (drift).",
)
@click.option(
    "--calls",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write every call with its ids to FILE, for `tito samples` and `tito audit`. Default: no file.",
)
@options.json_option("Print JSON lines: an object for each turn, then one with the summary.")
def rollout(**given: Any) -> None:
    """Run a conversation with tools, and account for every sampled id.

    Without options the embedded engine samples: a seeded sampler of random text, not a language model.
    """
    try:
        settings = taken_settings(given)
        sys.exit(_run(settings, RolloutOptions(**given)))
    except TitoError as error:
        complain(_ended(error, 0))
        sys.exit(_status_of(error))


def _run(settings: ServerSettings | None, given: RolloutOptions) -> int:
    """Run a rollout, with a server of its own if there are settings for one; return the exit status."""
    if settings is None:
        return anyio.run(_rollout, given)
    with local_engine(settings, family=given.family, fast=given.fast, check_every=given.check_every) as named:
        return anyio.run(_rollout, attrs.evolve(given, **named))


def _status_of(error: TitoError) -> int:
    """Return the exit status of a rollout that an error ended."""
    if isinstance(error, OverlongError):
        return FULL
    if isinstance(error, UnsupportedError):  # an option asks for what the engine cannot do
        return BAD_INPUT
    return ENGINE_FAILED if isinstance(error, EngineError | TokenizeError) else BAD_INPUT


def _ended(error: TitoError, turns: int) -> str:
    """Return why a rollout ended after `turns` turns."""
    text = error_text(error)
    if not isinstance(error, OverlongError):
        return text
    if not turns:
        unfit = "the first prompt and its answer of --max-tokens do not fit the context"
        return f"{unfit}; ask for less with --script or --max-tokens, or {LARGER}: {text}"
    full = f"the context is full after {turns} turn{'s' * (turns != 1)}"
    return f"{full}; ask for fewer with --turns, for shorter ones with --max-tokens, or {LARGER}: {text}"


async def _rollout(given: RolloutOptions) -> int:
    script = load(given.script) if given.script else default_script()
    family = given.loaded_family()
    async with aclosing(make_engine(given.engine, given.address(family))) as engine:
        conversation = Conversation(
            engine=engine,
            rendering=Rendering(tools=script.tools),
            sampling=given.sampling,
            policy=policy_of(truncated=given.truncated, odd_stop=given.odd_stop),
            renderer=rendered_by(family) if family else None,
            check_every=given.check_every,
            on_abort=as_on_abort(given.on_abort),
            sampling_masks=given.sampling_masks,
        )
        run = Rollout(conversation, script, given.turns or len(script.lines), compare=given.compare)
        run.waiting = given.waiting
        run.fast = family.fast.use if family and family.fast else None
        written = _calls_written(run, given.calls, engine)
        with written:
            return await _report(run, report_of(engine.name, as_json=given.as_json), given)


@contextmanager
def _calls_written(run: Rollout, path: Path | None, engine: Engine) -> Iterator[None]:
    """Write the rollout's calls to a file, if there is a path."""
    if path is None:
        yield
        return
    from tito_io.samples.forms.tito import CallFile  # noqa: PLC0415  # its readers know every engine's replies

    def write(turn: ClientTurn) -> None:
        try:
            calls.add(turn)
        except OSError as error:
            with suppress(OSError):  # closing tries to write what is buffered, which fails again
                calls.__exit__(None, None, None)
            raise InputError(f"--calls {path}: cannot be written: {error.strerror}") from error

    with CallFile(path, engine=renders_as(engine)) as calls:
        run.on_turn = write
        yield


async def _report(run: Rollout, report: Report, given: RolloutOptions) -> int:
    """Print every turn as it comes and then the summary; return the exit status."""
    # The file of calls is wanted whole, even where the reader of standard output leaves early.
    printing = nullcontext if given.calls is None else output_may_close
    error: TitoError | None = None
    try:
        async for row in run.run():
            with printing():
                report.add(row)
    except TitoError as raised:
        error = raised
        if not given.as_json and not run.rows:
            raise  # there is nothing to summarize: the caller prints the error
    except anyio.get_cancelled_exc_class():
        if given.as_json or run.rows:
            with printing():
                report.close(run.summary(INTERRUPTED))
        raise
    ended = None if error is None else _ended(error, len(run.rows))
    summary = run.summary(ended)
    with printing():
        report.close(summary)
    if error is None:
        return 0 if summary.whole else LOST
    if given.as_json:
        complain(str(ended))  # a program reads standard output, and a person the line on stderr
    return _status_of(error)
