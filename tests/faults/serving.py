"""Faults of the gateway: of its stores, of what it acknowledges, and of what it samples again."""

from __future__ import annotations

from functools import partial

from tests.faults.fault import Fault

ROOM = "tests/io/serve"
SERVING = partial(Fault, package="tito_io", plugins=("anyio.pytest_plugin",))
FILE = partial(SERVING, file="serve/sqlite.py", suites=(f"{ROOM}/test_stores.py",))
SERVER = partial(SERVING, file="serve/redis.py", suites=(f"{ROOM}/test_stores.py",))
HANDLER = partial(SERVING, file="serve/turn_handler.py", suites=(f"{ROOM}/test_turn_handler.py",))
SESSION = partial(SERVING, file="serve/session.py", suites=(f"{ROOM}/test_turn_handler.py",))
SESSIONS = partial(SERVING, file="serve/sessions.py", suites=(f"{ROOM}/test_sessions.py",))
TURN = partial(SERVING, file="serve/turns.py", suites=(f"{ROOM}/test_turns.py",))
RECOVERY = partial(SERVING, suites=(f"{ROOM}/test_recovery.py", "-k", "not kill"))
TEXTS = partial(SERVING, file="serve/text_check.py", suites=(f"{ROOM}/test_text_check.py",))
SPELLING = partial(
    SERVING, file="engines/replies/spelling.py", suites=("tests/io/engines/replies/test_spelling.py",)
)

FAULTS = (
    FILE(
        "a deleted session comes back",
        right='return self._changed("DELETE FROM sessions WHERE name = ?", name) > 0',
        wrong='return self._changed("UPDATE sessions SET touched = 0 WHERE name = ?", name) > 0',
    ),
    FILE(
        "a deleted session leaves its rows to the next one of its name",
        right='            self._changed("DELETE FROM turns WHERE name = ?", name)\n',
        wrong="",
    ),
    FILE(
        "--durable does nothing",
        right="{'FULL' if durable else 'NORMAL'}",
        wrong="NORMAL",
        suites=(f"{ROOM}/test_command.py", "-k", "durable"),
    ),
    FILE(
        "a durable row does not wait for the disk",
        right="if self.durable or self._unsaved",
        wrong="if self._unsaved",
    ),
    FILE(
        "a row is stored after one that the file has lost",
        right="if after is not None and not self._rows(TURN, name, after):",
        wrong="if False:",
    ),
    FILE(
        "a symbolic link to a store is another store",
        right="file = Path(os.path.realpath(path))",
        wrong="file = Path(path)",
    ),
    FILE(
        "a store with hard links is opened",
        right="if file.exists() and file.stat().st_nlink > 1:",
        wrong="if False:",
    ),
    SERVING(
        "a key that is longer than what is read of a request is taken",
        "serve/command.py",
        "    if len(key) > LONGEST:",
        "    if False:",
        (f"{ROOM}/test_command.py", "-k", "no_key"),
    ),
    SERVING(
        "an unknown key is taken for the id of a session",
        "serve/gateway.py",
        "if asked.by_key and not await self.sessions.exists(name):",
        "if False:",
        (f"{ROOM}/test_auth.py",),
    ),
    SERVING(
        "a wrong address of a store is printed with its password",
        "serve/stores.py",
        'named = f" not {kind}" if kind.isalpha() else ""',
        'named = f" not {address}"',
        (f"{ROOM}/test_stores.py", "-k", "password"),
    ),
    SERVING(
        "an address that stands for a private one is public",
        "serve/fetch.py",
        " or ip.packed[8:12] in ISATAP",
        "",
        (f"{ROOM}/test_media.py", "-k", "stands_for"),
    ),
    SERVING(
        "images are fetched from the machine itself",
        "serve/fetch.py",
        "is_public(ip) and not is_own(ip)",
        "is_public(ip)",
        (f"{ROOM}/test_media.py", "-k", "machine_itself"),
    ),
    SERVING(
        "--durable does not reach the file",
        "serve/command.py",
        "durable=options.durable)",
        "durable=False)",
        (f"{ROOM}/test_command.py", "-k", "durable"),
    ),
    SERVER(
        "the lease of another gateway is not looked at",
        right="if holder and holder ~= ARGV[1] then return {-2, 0, 0} end\n",
        wrong="",
    ),
    SERVER(
        "a late owner writes",
        right="if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return -2 end\nif ARGV[5]",
        wrong="if ARGV[5]",
    ),
    SERVER(
        "a session that another gateway deleted is claimed",
        right="if redis.call('EXISTS', KEYS[1]) == 0 then return {-1, 0, 0} end\nlocal rows",
        wrong="local rows",
    ),
    HANDLER(
        "a turn is acknowledged before it is stored",
        right="""            commits = await self._commit(session, turn)
            try:
                if not connection.gone:
                    await send_end()
            finally:""",
        wrong="""            if not connection.gone:
                await send_end()
            commits = await self._commit(session, turn)
            try:
                pass
            finally:""",
    ),
    HANDLER(
        "a turn whose client is gone stays stored",
        right="await session.take_back(new)",
        wrong="await session.received(commits)",
    ),
    HANDLER(
        "a turn counts as received although its end was dropped",
        right="if not (self.gone or self.closing()):",
        wrong="if not self.gone:",
        suites=(f"{ROOM}/test_connections.py", "-k", "just_before"),
    ),
    HANDLER(
        "a retry samples a turn that is stored",
        right="turn = await recover(turns, session, asked)",
        wrong="turn = None",
        suites=(f"{ROOM}/test_recovery.py", "-k", "not kill"),
    ),
    SESSIONS(
        "a session that another gateway deleted is used",
        right="if self.store.shared and not await self.exists(name):",
        wrong="if False:",
    ),
    SESSIONS(
        "a session that another gateway wrote to is not read again",
        right="if session is None or not (known and ours and claim.rows in (None, len(session.commits))):",
        wrong="if session is None:",
    ),
    RECOVERY(
        "equal requests with one key at once are sampled twice",
        "serve/sessions.py",
        "        if repeated is None:\n            yield",
        "        if True:\n            yield",
    ),
    RECOVERY(
        "a lost turn is the answer to every equal request",
        "serve/recovery.py",
        "session.unreceived -= _reserved(commits)",
        "pass",
    ),
    SESSION(
        "a turn that is taken back stays stored",
        right="""            with self._writing():
                await self.store.take_back(self.name, self.epoch, commit.call.order)
""",
        wrong="",
    ),
    SESSION(
        "the ids of a turn that is taken back are still counted",
        right="            self.ids -= _new_ids(commit, self.commits)\n",
        wrong="",
    ),
    SESSION(
        "ids that turns share are counted for each of them",
        right="return whole - (base.ids.length if commit.step.prompt_ids.extends(base.ids) else 0)",
        wrong="return whole",
        suites=(f"{ROOM}/test_sessions.py", f"{ROOM}/test_rows.py", f"{ROOM}/test_faults.py"),
    ),
    SESSION(
        "a turn is stored after a parent that the store has lost",
        right="encode(commit, parent), after=after)",
        wrong="encode(commit, parent))",
        suites=(f"{ROOM}/test_sessions.py",),
    ),
    SESSION(
        "a session is not read again after a write of which nothing is known",
        right="            self.must_reload = True\n",
        wrong="",
        suites=(f"{ROOM}/test_sessions.py",),
    ),
    SERVER(
        "a server that hangs is waited for without end",
        right="                socket_timeout=ANSWER_SECONDS,\n",
        wrong="",
        suites=(f"{ROOM}/test_stores.py", "-k", "never_answers"),
    ),
    SERVER(
        "a connection is waited for without end",
        right="                socket_connect_timeout=ANSWER_SECONDS,\n",
        wrong="",
        suites=(f"{ROOM}/test_stores.py", "-k", "never_answers"),
    ),
    SESSION(
        "only the first of several turns is received in the store",
        right="[commit.call.order for commit in commits])",
        wrong="[commit.call.order for commit in commits[:1]])",
        suites=(f"{ROOM}/test_recovery.py", "-k", "not kill"),
    ),
    RECOVERY(
        "only the first of several lost turns is handed out once",
        "serve/recovery.py",
        "session.unreceived -= _reserved(commits)",
        "session.unreceived -= _reserved(commits[:1])",
    ),
    RECOVERY(
        "only the first of several lost turns is lost again",
        "serve/recovery.py",
        "session.unreceived |= _reserved(turn.commits)",
        "session.unreceived |= _reserved(turn.commits[:1])",
    ),
    RECOVERY(
        "a continued message is answered again with reasoning that its client had",
        "serve/resume.py",
        "reasoning = _reasoning(joined).removeprefix(_reasoning(before))",
        "reasoning = _reasoning(joined)",
    ),
    RECOVERY(
        "reasoning under its other name is lost where a message is continued",
        "serve/resume.py",
        'REASONING = ("reasoning", "reasoning_content")',
        'REASONING = ("reasoning",)',
    ),
    SERVING(
        "several turns that continue a message are all the first of them",
        "serve/resume.py",
        "_step(step, prompt, one) for one in (reply, *reply.siblings)",
        "_step(step, prompt, reply) for one in (reply, *reply.siblings)",
        (f"{ROOM}/test_turns.py",),
    ),
    TURN(
        "several turns of a request end as the first of them",
        right="            stop_reason=reply.stop_reason,\n",
        wrong="",
    ),
    TURN(
        "several turns of a request have the worker of the first of them",
        right="            worker=reply.worker,\n",
        wrong="",
    ),
    SERVING(
        "a host is asked if one of its addresses is public",
        "serve/fetch.py",
        "if not addresses or not all(map(self.allowed, addresses)):",
        "if not addresses or not any(map(self.allowed, addresses)):",
        (f"{ROOM}/test_media.py", "-k", "inside_of"),
    ),
    SERVING(
        "only the first address of a host must be public",
        "serve/fetch.py",
        "if not addresses or not all(map(self.allowed, addresses)):",
        "if not addresses or not self.allowed(addresses[0]):",
        (f"{ROOM}/test_media.py", "-k", "inside_of"),
    ),
    SERVING(
        "a session with many requests is served before all others",
        "serve/places.py",
        "            self._waiting[session] = places\n",
        "            self._waiting = {session: places, **self._waiting}\n",
        (f"{ROOM}/test_places.py",),
    ),
    SERVING(
        "a turn that is cancelled as it gets its place keeps it",
        "serve/places.py",
        "if place.is_set():",
        "if False:",
        (f"{ROOM}/test_places.py",),
    ),
    SERVING(
        "the wait of all turns is counted as that of first ones",
        "serve/metrics.py",
        '"later" if later else "first"',
        '"first"',
        (f"{ROOM}/test_metrics.py", "-k", "later"),
    ),
    SERVING(
        "every turn that begins meanwhile asks the engine the same",
        "engines/one_asks.py",
        "        if asked in running:\n",
        "        if False:\n",
        ("tests/io/engines/test_one_asks.py",),
    ),
    FILE(
        "a session without turns is loaded in a thread",
        right="if await self._has_turns(name)",
        wrong="if True",
    ),
    SERVING(
        "a large body is read where all requests are answered",
        "serve/gateway.py",
        "if len(raw) <= SMALL else",
        "if True else",
        (f"{ROOM}/test_bodies.py", "-k", "other_requests"),
    ),
    SPELLING(
        "a text that is not that of its ids is believed",
        right="return ours.startswith(theirs) and theirs.startswith(needed)",
        wrong="return True",
    ),
    SPELLING(
        "a special token that an engine leaves out is a difference",
        right='return _dense(self.added.sub("", text))',
        wrong="return _dense(text)",
    ),
    SPELLING(
        "what stands for a part of a character is a difference",
        right="        if broken:\n",
        wrong="        if False:\n",
    ),
    SPELLING(
        "what engines write for an id that the vocabulary lacks is a difference",
        right="if any(self.token(index) is None for index in ids):",
        wrong="if False:",
    ),
    TEXTS(
        "what a server's parsers took apart is compared",
        right="if _parsed_by_server(reply.raw):",
        wrong="if False:",
    ),
    TEXTS(
        "of several turns only the text of the first is compared",
        right="for one in (reply, *reply.siblings)",
        wrong="for one in (reply,)",
    ),
    TEXTS(
        "what stands behind a stop string is missed in a text",
        right="return 0 if by_string or reply.finish_reason",
        wrong="return 0 if reply.finish_reason",
    ),
    TEXTS(
        "no text is compared",
        file="serve/turns.py",
        right="        self._check_text(session, sampled.turn.reply, sampling.stop)\n",
        wrong="",
    ),
    SERVING(
        "a field that no store can write is read",
        "serve/gateway.py",
        "        if deep is not None:\n            raise too_deep",
        "        if False:\n            raise too_deep",
        (f"{ROOM}/test_requests.py", "-k", "nests"),
    ),
    SERVING(
        "a text that nests too deep ends the sampler of tools",
        "embedded/reply.py",
        "AttributeError, RecursionError):",
        "AttributeError):",
        (f"{ROOM}/test_requests.py", "-k", "nests"),
    ),
    SERVING(
        "any number of messages is read",
        "serve/app.py",
        "body = await gateway.messages(request)",
        "body = await gateway.json(request)",
        (f"{ROOM}/test_bodies.py", "-k", "messages"),
    ),
    SERVING(
        "the parts of a message are not counted",
        "serve/body.py",
        "count += len(level) - len(inside)",
        "count += len(level)",
        (f"{ROOM}/test_bodies.py", "-k", "messages"),
    ),
    TURN(
        "a conversation that is continued by an id grows without end",
        right="if len(messages) > self.limits.messages:",
        wrong="if False:",
        suites=(f"{ROOM}/test_bodies.py", "-k", "stored_conversation"),
    ),
    SERVING(
        "a half-sent request keeps its connection",
        "serve/connections.py",
        "elif self._deadline is None:",
        "elif False:",
        (f"{ROOM}/test_connections.py", "-k", "arrive"),
    ),
)
"""Each breaks a promise that docs/howto/deploy.md makes to operators."""
