"""A log that is one or several tables of PostgreSQL: rows that were inserted, in the order of their commits.

How it works, and why nothing is lost, twice or out of order: docs/design/postgres.md. In short:

- *Reading* follows a replication slot (`changes.py`). No other order will do: `id > last` loses rows whose transaction
  was slow, and the order of transaction ids puts answers before their causes.
- *Appending* is one statement (`insertion.py`): the row of our state is updated if it has our token and the expected
  record, and only then rows are inserted.
- *The slot* is moved behind a checkpoint only when that is committed, so whoever takes over can read from it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from isthmus.adapters.postgres.changes import Changes, stream
from isthmus.adapters.postgres.insertion import FENCE, inserts
from isthmus.adapters.postgres.position import Place, is_lsn, is_position, lsn_of, lsn_text, place_of
from isthmus.adapters.postgres.session import Locked, RefusedRow, Session, address_of
from isthmus.adapters.postgres.setup import alone, find_tables, look_at_server, make_slot, name_of, publish
from isthmus.adapters.postgres.table import Layout, Table, roles_of
from isthmus.runtime.log.content import decode, encode
from isthmus.runtime.log.interface import (
    BEGINNING,
    Entry,
    LogProblem,
    LogSettings,
    Parked,
    Position,
    Recreated,
    Refused,
    Slice,
    State,
    Superseded,
    Trimmed,
    Unavailable,
)

MOVE_EVERY = 10.0
"""Seconds between two moves of the slot: each has the server read what it has written in about that time once more."""
MOVE_PATIENCE = 60.0
LOOK_EVERY = 1.0
"""Seconds between two looks at whether the tables are still the same."""
WAIT = 1.0
"""Seconds that a read waits for an entry."""

_STATE = "SELECT token, record, checkpoint FROM isthmus.state WHERE log = $1"

_CLAIM = """WITH mine AS (UPDATE isthmus.state SET token = token + 1, owner = $2, holder = $3, noted = 0,
    lease_until = clock_timestamp() + make_interval(secs => $4)
    WHERE log = $1 AND (lease_until <= clock_timestamp() OR owner = $2) RETURNING token, record, checkpoint)
    SELECT EXISTS (SELECT FROM isthmus.state WHERE log = $1), mine.* FROM (SELECT) AS one LEFT JOIN mine ON true"""
"""A claim that we gave up waiting for may be carried out later: `owner` lets us have it again."""

_FREE = """SELECT pg_terminate_backend(lock.pid) FROM isthmus.state AS state JOIN pg_locks AS lock
    ON lock.locktype = 'transactionid' AND lock.transactionid = state.xmax AND lock.granted
    WHERE log = $1 AND lease_until <= clock_timestamp()"""
"""Ends the connection of a holder whose lease is over, and who was stopped in the middle of a transaction."""

_RENEW = """UPDATE isthmus.state SET lease_until = clock_timestamp() + make_interval(secs => $3)
    WHERE log = $1 AND token = $2 RETURNING 1"""

_RELEASE = "UPDATE isthmus.state SET lease_until = '-infinity', owner = '' WHERE log = $1 AND token = $2"

_NOTE = """UPDATE isthmus.state SET checkpoint = $3, noted = $4
    WHERE log = $1 AND token = $2 AND noted < $4 RETURNING 1"""
"""`noted` counts the notes of one holder: one that comes late does not undo a newer one, behind which the slot is."""

_PASS = "UPDATE isthmus.state SET passed_from = $3, passed_to = $4 WHERE log = $1 AND token = $2 RETURNING 1"

_MOVE = """SELECT pg_replication_slot_advance(slot_name, $2::text::pg_lsn) FROM pg_replication_slots
    WHERE slot_name = $1 AND NOT active AND confirmed_flush_lsn < $2::text::pg_lsn"""

_PARK = f"""{FENCE}, parked AS (INSERT INTO isthmus.parked (log, reason, origin, seq, path, part, content)
    SELECT $2, $5, $6, $7, $8, $9, $10 WHERE EXISTS (SELECT FROM fence)) SELECT count(*) FROM fence"""

_PARKED = "SELECT id, reason, origin, seq, path, part, content FROM isthmus.parked WHERE log = $1 ORDER BY id LIMIT $2"

_BEGAN = "SELECT began, older AND checkpoint = '' FROM isthmus.state WHERE log = $1"

_SLOT = "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = $1"

_WHERE = """SELECT (SELECT system_identifier FROM pg_control_system()),
    ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int,
    (pg_current_wal_insert_lsn() - '0/0')::bigint,
    (SELECT array_agg(to_regclass(name)::oid::bigint ORDER BY number)
     FROM unnest($1::text[]) WITH ORDINALITY AS names(name, number))"""


class PostgresLog:
    """The tables `settings.streams` of one database, as one log in the order of commits."""

    def __init__(self, settings: LogSettings) -> None:
        self._settings = settings
        self._address = address_of(settings)
        host, port = self._address.get("host", "localhost"), self._address.get("port", 5432)
        self._where = f"{settings.system} ({host}:{port}/{self._address['dbname']})"
        self._roles = roles_of(settings.options)
        self._name = name_of(settings.state)
        self._log = settings.state
        self._session = Session(self._address, self._where)
        self._mover = Session(self._address, self._where)
        self._tables: list[Table] = []
        self._owner = os.urandom(8).hex()
        self._token = -1
        self._notes = 0
        self._noted: Place | None = None
        self._changes: Changes | None = None
        self._looked = self._moved = 0.0
        self._moving: asyncio.Task[None] | None = None

    async def open(self) -> Sequence[str]:
        async with alone(self._session, self._where):
            warnings = await look_at_server(self._session, self._where)
            return [*warnings, *await self._set_up()]

    async def _set_up(self) -> list[str]:
        self._tables, warnings = await find_tables(self._session, self._settings, self._roles, self._where)
        await publish(self._session, self._name, self._tables, self._where)
        await make_slot(self._session, self._address, self._settings, self._tables, self._where)
        return warnings

    # The claim

    async def claim(self, holder: str, lease: float) -> State | None:
        try:
            ((there, *state_of),) = await self._rows(_CLAIM, self._log, self._owner, holder[:500], lease)
        except Locked:
            await self._rows(_FREE, self._log)
            raise
        if not there:
            raise LogProblem(f"{self._where}: the row {self._log} of isthmus.state is gone. Start again, to begin anew")
        if state_of[0] is None:
            return None
        state = State(*state_of)
        self._token = state.token
        self._notes = 0
        self._noted = None
        return state

    async def renew(self, lease: float) -> None:
        if not await self._rows(_RENEW, self._log, self._token, lease):
            raise Superseded
        self._move_slot()

    async def release(self) -> None:
        await self._rows(_RELEASE, self._log, self._token)

    async def state(self) -> State:
        rows = await self._rows(_STATE, self._log)
        return State(*rows[0]) if rows else State(0, b"", b"")

    # Reading

    async def find(self, start: str) -> Position:
        if is_position(start):
            return start
        if start == "start":
            # After a loss that was accepted the tables may be others, and the slot gone.
            async with alone(self._session, self._where):
                await self._set_up()
        here = await self._here()
        if start == "now":
            return here.position()
        first = await self._first()
        if is_lsn(start):
            if lsn_of(start) < first.lsn:
                kept = lsn_text(first.lsn)
                raise Trimmed(f"{self._where}: what was written at {start} is not kept; the first is {kept}")
            return first._replace(lsn=lsn_of(start)).position()
        ((began, older),) = await self._rows(_BEGAN, self._log)
        if start == "start":
            self._refuse_older(older, began)
            return first.position()
        try:
            time = datetime.fromisoformat(start)
        except ValueError:
            raise LogProblem(
                f'{self._where}: from = "{start[:100]}" is neither "start" nor "now", nor a time, nor a place such as '
                "0/16B3748"
            ) from None
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        if began is None or time < began:
            self._refuse_older(older, began)
        changes = await self._stream(first)
        try:
            return (await changes.seek(time, here.lsn)).position()
        finally:
            await changes.close()

    def _refuse_older(self, older: bool, began: datetime | None) -> None:
        if older:
            raise LogProblem(
                f"{self._where}: there are rows from before {began:%Y-%m-%d %H:%M:%S%z}, when isthmus first looked, "
                'and nobody knows in which order they were committed. Write from = "now", and if they are wanted, '
                "insert them once more when the join runs"
            )

    async def read(self, after: Position, entries: int, size: int) -> Slice:
        try:
            return await self._read(after, entries, size)
        except BaseException:
            # What has come of it is unknown: the next call begins anew at its place.
            await self._stop_reading()
            raise

    async def _read(self, after: Position, entries: int, size: int) -> Slice:
        place = place_of(after) if after else await self._first()
        now = asyncio.get_running_loop().time()
        changes = self._changes
        if changes is None or changes.place != place:
            await self._stop_reading()
            changes = self._changes = await self._stream(place)
        elif now - self._looked > LOOK_EVERY:
            await self._verify(place)
        got = await changes.read(entries, size, WAIT)
        return Slice(got, changes.place.position())

    async def _first(self) -> Place:
        """Where the slot begins."""
        rows = await self._rows(_SLOT, self._name)
        if not rows:
            raise Trimmed(f"{self._where}: its slot {self._name} was dropped. Start again, which makes it anew")
        return (await self._here())._replace(lsn=rows[0][0])

    async def _stream(self, place: Place) -> Changes:
        await self._verify(place)
        return await stream(self._address, self._where, self._name, place, self._layout, self._passed)

    def _layout(self, oid: int, columns: Sequence[tuple[str, int]]) -> Layout | None:
        for part, table in enumerate(self._tables):
            if table.oid == oid:
                return Layout(columns, table, part)
        return None

    async def _passed(self, place: Place, held: int) -> int:
        """Where to read on if the slot is past this place because nothing of ours was between; 0 if it is not so."""
        ((origin, to),) = await self._rows("SELECT passed_from, passed_to FROM isthmus.state WHERE log = $1", self._log)
        return int(to) if origin == place.position() and to >= held else 0

    async def _here(self) -> Place:
        """The end of what is written by now."""
        ((system, timeline, lsn, oids),) = await self._rows(_WHERE, [table.sql for table in self._tables])
        return Place(system, timeline, "+".join(str(oid or 0) for oid in oids), lsn)

    async def _verify(self, place: Place) -> None:
        """Raise `Recreated` if the place is not in this log."""
        here = await self._here()
        self._looked = asyncio.get_running_loop().time()
        if place.system != here.system:
            raise Recreated(f"{self._where}: this is another cluster than the one that was read")
        if place.timeline != here.timeline:
            raise Recreated(
                f"{self._where}: the server was restored, or a standby has taken over (timeline {here.timeline}, "
                f"it was {place.timeline}). What was committed last may be missing there"
            )
        ours = "+".join(str(table.oid) for table in self._tables)
        if place.tables != here.tables or place.tables != ours:
            names = ", ".join(table.sql for table in self._tables)
            raise Recreated(f"{self._where}: {names}: dropped and made anew, or others than those that were read")
        if place.lsn > here.lsn:
            raise Recreated(
                f"{self._where}: what was read at {lsn_text(place.lsn)} is not there: the server ends at "
                f"{lsn_text(here.lsn)}. It was set back"
            )

    async def _stop_reading(self) -> None:
        changes, self._changes = self._changes, None
        if changes is not None:
            await changes.close()

    # Appending

    async def append(self, entries: Sequence[Entry], record: bytes, expected: bytes) -> None:
        fence = [record, self._log, self._token, expected]
        runs = inserts(self._tables, entries)
        try:
            if len(runs) == 1:
                ((done,),) = await self._rows(runs[0].statement, *fence, *runs[0].values)
            else:
                done = await self._session.together((f"{FENCE} SELECT count(*) FROM fence", fence), runs)
        except RefusedRow:
            index, reason = await self._first_refused(entries, fence)
            raise Refused(index, reason) from None
        await self._was_done(done, record)

    async def _first_refused(self, entries: Sequence[Entry], fence: list[Any]) -> tuple[int, str]:
        """The first entry that the server will not take, found by trying ever shorter beginnings, and undoing them."""
        fine, refused, reason = 0, len(entries), ""
        while not reason or refused - fine > 1:
            middle = refused if not reason else (fine + refused) // 2
            runs = inserts(self._tables, entries[:middle])
            if len(runs) == 1:
                runs[0].values[:0] = fence
            try:
                await self._session.try_out(runs)
            except RefusedRow as error:
                refused, reason = middle, str(error)
            else:
                if not reason:
                    raise Unavailable(f"{self._where}: what the server refused it takes now")
                fine = middle
        return refused - 1, reason

    async def _was_done(self, done: int, record: bytes) -> None:
        if done:
            return
        state = await self.state()
        # An attempt of ours that nobody waited for may have been carried out meanwhile.
        if state.token != self._token or state.record != record:
            raise Superseded

    async def park(self, entry: Entry, reason: str, record: bytes, expected: bytes) -> None:
        content, origin, seq, path, part = entry
        fence = [record, self._log, self._token, expected]
        # Text has no NUL here, and what was refused may have one anywhere.
        words = [word.replace("\0", "\N{REPLACEMENT CHARACTER}") for word in (reason, origin, path)]
        ((done,),) = await self._rows(_PARK, *fence, words[0], words[1], seq, words[2], part, encode(content))
        await self._was_done(done, record)

    async def parked(self, limit: int) -> Sequence[Parked]:
        rows = await self._rows(_PARKED, self._log, limit)
        return [
            Parked(str(id), reason, Entry(decode(content), origin, seq, path, part))
            for id, reason, origin, seq, path, part, content in rows
        ]

    async def unpark(self, id: str) -> None:
        if id.isdigit() and len(id) < 19:
            await self._rows("DELETE FROM isthmus.parked WHERE log = $1 AND id = $2", self._log, int(id))

    # What is kept

    async def note(self, checkpoint: bytes, position: Position = BEGINNING) -> None:
        self._notes += 1
        if not await self._rows(_NOTE, self._log, self._token, checkpoint, self._notes):
            raise Superseded
        if position:
            self._noted = place_of(position)
            self._move_slot()

    async def durable(self) -> None:
        """What was committed was flushed before (`synchronous_commit` is on in our connections)."""

    def _move_slot(self) -> None:
        """Now and then let go of what is before the checkpoint. It runs beside everything else: it may take seconds."""
        now = asyncio.get_running_loop().time()
        if self._noted is None or now - self._moved < MOVE_EVERY or (self._moving and not self._moving.done()):
            return
        self._moved = now
        self._moving = asyncio.create_task(self._move(self._noted))

    async def _move(self, noted: Place) -> None:
        to, changes = noted.lsn, self._changes
        with suppress(Unavailable):
            if changes is not None and changes.place == noted and changes.decoded > to:
                # Others write to the database and nobody to our tables: their log has to go, too.
                to = changes.decoded
                if not await self._mover.rows(_PASS, (self._log, self._token, noted.position(), to)):
                    return
            await self._mover.rows(_MOVE, (self._name, lsn_text(to)), MOVE_PATIENCE)

    async def close(self) -> None:
        if self._moving is not None:
            self._moving.cancel()
            await asyncio.gather(self._moving, return_exceptions=True)
        await self._stop_reading()
        await self._mover.close()
        await self._session.close()

    async def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return await self._session.rows(statement, values)
