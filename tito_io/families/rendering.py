"""Renderings: a chat template with fixed tools and arguments, and the facts learned about each one."""

from __future__ import annotations

import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from attrs import define, evolve, field, frozen

import tito_core
from tito_core import Bridge, InputError, Policy, answer, render_key, suffix_ids
from tito_core.media.ranges import PlaceholderIds, Placeholders
from tito_core.policy import STRICT
from tito_core.seams.probe import bare_profile_questions, probe
from tito_core.seams.profile import VERSION, Profile

from .clock_use import Moment
from .kept_files import FORM
from .placeholders import written_placeholder
from .preprocessing.engines import rules_for
from .preprocessing.message_rules import MessageRules
from .profile_cache import ProfileCache
from .stored_profile import StoredProfile
from .template_values import plain, plain_objects

Messages = Sequence[Mapping[str, Any]]
Objects = Messages | None
T = TypeVar("T")

_OF_BRIDGE = frozenset(("tokenize_fn", "stop_ids", "profile", "suffix"))
_KEPT = 256
"""Renderings that a family remembers: rollouts have a handful, but a data set may have tools per row."""


@frozen(eq=False)
class RenderArgs:
    """The arguments of a template beside messages; private copies in plain JSON values.

    Attributes:
        tools: Tools, None for none.
        documents: Documents, None for none.
        template_args: Further variables.
    """

    tools: list[dict[str, Any]] | None
    documents: list[dict[str, Any]] | None
    template_args: Mapping[str, Any]

    @classmethod
    def of(cls, *, tools: Objects = None, documents: Objects = None, **template_args: Any) -> Self:
        """Return copies of what the caller passed; raises `InputError` for what is not JSON data."""
        copies = {name: plain(value, name) for name, value in sorted(template_args.items())}
        return cls(plain_objects(tools, "tools"), plain_objects(documents, "documents"), copies)

    @property
    def name(self) -> str:
        """The name under which a family keeps the rendering.

        It is finer than `key`: templates tell a tuple from a list, and no tools from an empty list.
        """
        return repr((self.tools, self.documents, self.template_args))

    @property
    def key(self) -> str | None:
        """The key of the rendering as steps have it; None where a template gets nothing but messages."""
        documents = {} if self.documents is None else {"documents": self.documents}
        args = {**self.template_args, **documents}
        return render_key(self.tools, args) if self.tools or args else None


class BoundTemplate(Protocol):
    """A `TokenizeFn` that knows what its answers depend on."""

    def __call__(self, messages: Messages, *, add_generation_prompt: bool, **ending: Any) -> list[int]:
        """Return the ids of `messages`."""

    def text(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
    ) -> str:
        """Return the text of `messages`."""

    @property
    def template_words(self) -> tuple[str, ...]:
        """The words that the template looks for in messages, as far as its source is known."""

    def moment(self) -> Moment:
        """Return the time, as far as renders depend on it."""

    def origin(self) -> Mapping[str, Any] | None:
        """Return what decides the ids beside arguments and time; None if that is not known."""


def text_from(whole: str, since: str | None) -> str:
    """Return a rendered text from `since` on; all of it where that is None, or occurs not exactly once.

    >>> text_from("<a>hi<e>", "hi"), text_from("hi, hi", "hi")
    ('hi<e>', 'hi, hi')
    """
    return whole[whole.index(since) :] if since is not None and whole.count(since) == 1 else whole


F = TypeVar("F", bound=BoundTemplate)


@define(eq=False)
class FamilyRendering(Generic[F]):
    """One rendering of a family.

    Attributes:
        args: What the template gets beside messages.
        tokenize_fn: The function that renders and tokenizes.
        stop_ids: The ids that end a turn.
    """

    args: RenderArgs
    tokenize_fn: F
    stop_ids: tuple[int, ...]
    _learned: dict[Hashable, tuple[Moment, Any]] = field(factory=dict, init=False, repr=False)

    def suffix(self) -> tuple[int, ...]:
        """Return the ids that close an assistant turn."""
        return self._learn("suffix", partial(suffix_ids, self.tokenize_fn))

    def profile(self) -> StoredProfile:
        """Return the profile from its file, or ask for it and write the file."""
        make = partial(probe, self.tokenize_fn, self.stop_ids)
        return self._learn("profile", partial(self._stored, "profile", make))

    def grown_profile(self) -> StoredProfile:
        """Return what conversations have learned, without asking for more than the close."""
        make = partial(answer, bare_profile_questions(self.stop_ids), self.tokenize_fn)
        return self._learn("grown", partial(self._stored, "grown", make))

    def bridge(self, policy: Policy, *, spans: bool, media: Placeholders | None) -> Bridge:
        """Return the bridge of a policy, with or without spans."""
        return self._learn(("bridge", policy, spans, media), partial(self._make_bridge, policy, spans, media))

    def _make_bridge(self, policy: Policy, spans: bool, media: Placeholders | None) -> Bridge:
        return Bridge(self.tokenize_fn, policy=policy, profile=self.profile(), spans=spans, media=media)

    def placeholder(self, candidates: Callable[[], Mapping[str, Sequence[int]]]) -> tuple[int, ...] | None:
        """Return the one of `candidates` that the template writes for an image; None if it writes none."""
        return self._learn("placeholder", lambda: written_placeholder(self.tokenize_fn, dict(candidates())))

    def _learn(self, what: Hashable, find: Callable[[], T]) -> T:
        """Return what `find` found at an equal moment, or let it find it now."""
        now = self.tokenize_fn.moment()
        known = self._learned.get(what)
        if known is not None and known[0] == now:
            found: T = known[1]
            return found
        found = find()
        self._learned[what] = now, found
        return found

    def _stored(self, what: str, make: Callable[[], Profile]) -> StoredProfile:
        """Return a profile from its file; `make` it and write the file if that is missing."""
        moment = self.tokenize_fn.moment()
        key = self._file_key(moment, what)
        store = partial(self._store, key, moment)
        known = None if key is None else ProfileCache.default().find(key)
        words = self.tokenize_fn.template_words
        if known is not None:  # a file may be older than what finds the words
            return StoredProfile(evolve(known, words=words), store)
        profile = evolve(make(), key=self.args.key, words=words)
        store(profile)
        return StoredProfile(profile, store)

    def _store(self, key: str | None, moment: Moment, profile: Profile) -> None:
        """Write what was learned since `moment`, together with what other processes have learned."""
        if key is None or profile.facts.random or self.tokenize_fn.moment() != moment:
            return
        files = ProfileCache.default()
        known = files.find(key)
        files.keep(key, profile if known is None else known.then(*profile.cases))

    def _file_key(self, moment: Moment, what: str) -> str | None:
        """Return a hash of everything that the profile depends on; None if that is not known."""
        origin = self.tokenize_fn.origin() if moment.fixed else None
        if origin is None:
            return None
        asked = {"what": what, "args": self.args.name, "stops": self.stop_ids, "time": moment.readings}
        parts = {**asked, "origin": origin, "code": _asking_code()}
        return text_digest(json.dumps(parts, sort_keys=True, default=repr))


class RenderingFamily(ABC, Generic[F]):
    """The common part of families of folders and of tokenizers: everything asked once per rendering."""

    __slots__ = ()

    stop_ids: tuple[int, ...]
    rules: MessageRules
    _kept: dict[str, FamilyRendering[F]]

    def rendered_as(self, engine: str) -> Self:
        """Return the family with the prompts of an engine, which changes messages before the template.

        A family alone gives them to the template as they came. The page about prompts has the table.

        Args:
            engine: `vllm`, `sglang` or another engine of that list.

        Raises:
            InputError: There is no such engine.
        """
        return self._with_rules(rules_for(engine))

    @abstractmethod
    def _with_rules(self, rules: MessageRules) -> Self:
        """Return the family with other rules."""

    def rendering(
        self, *, tools: Objects = None, documents: Objects = None, **template_args: Any
    ) -> FamilyRendering[F]:
        """Return a rendering, which can be asked for its function, suffix, profile and bridges.

        Equal arguments give the same rendering. The other methods take the same arguments.

        Args:
            tools: Tools that the template renders, None for none; JSON schemas, not Python functions.
            documents: Documents that the template renders, None for none.
            template_args: Further variables for the template. They hide special tokens of the same name.

        Raises:
            InputError: Something is not JSON data.
        """
        args = RenderArgs.of(tools=tools, documents=documents, **template_args)
        known = self._kept.get(args.name)
        if known is not None:
            return known
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        return self._kept.setdefault(args.name, FamilyRendering(args, self._bind(args), self.stop_ids))

    def tokenize_fn(self, *, tools: Objects = None, documents: Objects = None, **template_args: Any) -> F:
        """Return the `tito_core.TokenizeFn` of a rendering; the arguments are those of `rendering`.

        Equal arguments give the same function.
        """
        return self.rendering(tools=tools, documents=documents, **template_args).tokenize_fn

    def suffix(self, **rendering: Any) -> tuple[int, ...]:
        """Return the ids that close an assistant turn: `tito_core.suffix_ids`, asked once per rendering.

        Args:
            rendering: The arguments of `rendering`.

        Raises:
            InputError: The template loses an assistant's content, so that no turn of it can be located.
            TemplateRefused: It rejects the questions.
        """
        return self.rendering(**rendering).suffix()

    def profile(self, **rendering: Any) -> StoredProfile:
        """Return the profile of a rendering, asked once; it grows with the cases that conversations have.

        It is kept in this process and in a file below the user's cache folder, or below `TITO_CACHE`. The
        file's name is a hash of all that the ids depend on: template, vocabulary, arguments, stop ids and the
        versions of the libraries. A template that prints the date is asked anew on another date.

        With tools or arguments the profile has a key, and serves steps of that key only (see `render_key`).

        Args:
            rendering: The arguments of `rendering`.

        Raises:
            InputError: The template loses an assistant's content, so that no turn of it can be located.
            TemplateRefused: It rejects the questions.
        """
        return self.rendering(**rendering).profile()

    def bridge(
        self,
        *,
        policy: Policy = STRICT,
        spans: bool = True,
        media: PlaceholderIds | None = None,
        **rendering: Any,
    ) -> Bridge:
        """Return the `tito_core.Bridge` of a rendering, for callers that hold ids and new messages.

        Equal arguments give the same bridge. What it learns about the template becomes part of `profile`, so
        that a later process need not ask again.

        Args:
            policy: What to do with cut turns and odd stops.
            spans: Whether to ask which ids belong to which new message.
            media: The ids that the template writes for a medium, such as `{"image": [151655]}`; None refuses
                conversations with media.
            rendering: The arguments of `rendering`.

        Raises:
            InputError: The template loses an assistant's content, so that no turn of it can be located; or an
                argument of `Bridge` that the family sets itself.
            TemplateRefused: It rejects the questions.
        """
        for name in _OF_BRIDGE & rendering.keys():
            raise InputError(f"{name}: the family sets it itself; make a Bridge to give another one")
        return self.rendering(**rendering).bridge(policy, spans=spans, media=Placeholders.of(media))

    def text(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        **rendering: Any,
    ) -> str:
        """Render `messages` to text; raises `TemplateRefused` where the template rejects them.

        Args:
            messages: The conversation.
            add_generation_prompt: Whether the text ends with the beginning of an assistant's turn.
            continue_final_message: Whether the last message stays open at the end of its content; or the
                name of the field at whose end it stays open.
            rendering: The arguments of `rendering`.
        """
        bound, ending = self._bound(add_generation_prompt, continue_final_message, **rendering)
        return bound.text(messages, **ending)

    def ids(self, messages: Messages, **options: Any) -> list[int]:
        """Return the ids of `messages`; `options` are those of `text`."""
        bound, ending = self._bound(**options)
        return bound(messages, **ending)

    def _bound(
        self,
        add_generation_prompt: bool = False,
        continue_final_message: bool | str = False,
        **rendering: Any,
    ) -> tuple[F, dict[str, Any]]:
        """Return a rendering's function, and how a text ends; some processors do not know the second way."""
        open_at = {"continue_final_message": continue_final_message} if continue_final_message else {}
        bound = self._bind(RenderArgs.of(**rendering))
        return bound, {"add_generation_prompt": add_generation_prompt, **open_at}

    @abstractmethod
    def _bind(self, args: RenderArgs) -> F:
        """Return the function of a rendering."""


def library_versions(*names: str) -> dict[str, str | None]:
    """Return the versions of those libraries that are loaded; nothing is imported for it."""
    return {name: getattr(sys.modules.get(name), "__version__", None) for name in names}


def text_digest(text: str) -> str:
    """Return a hash that stands for a long text.

    >>> text_digest("a")[:8]
    'ca978112'
    """
    return sha256(text.encode(errors="surrogatepass")).hexdigest()


@cache
def _asking_code() -> list[Any]:
    """Return what stands for the code that makes profiles: its versions, and its files.

    The files tell apart the states of a checkout, whose version stays the same while it is worked on.
    """
    core, families = Path(tito_core.__file__).parent, Path(__file__).parent
    files = (*sorted(core.rglob("*.py")), *sorted(families.glob("*.py")))
    digests = [sha256(file.read_bytes()).hexdigest() for file in files]
    return [tito_core.__version__, sys.version_info[:2], VERSION, FORM, *digests]
