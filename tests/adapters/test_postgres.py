"""Tables of PostgreSQL as a log, on a real server: commit order, the slot, what is refused, what has to be set up."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from certificates import Authority
from patience import seconds

from isthmus.adapters.conformance import CHECKS, run_suite
from isthmus.adapters.postgres import PostgresLog
from isthmus.adapters.postgres.setup import name_of
from isthmus.lab.brokers.postgres import PostgresServer, PostgresTrial
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import (
    BEGINNING,
    Entry,
    LogProblem,
    LogSettings,
    Recreated,
    Refused,
    Trimmed,
    Unavailable,
)

pytestmark = pytest.mark.real

OURS = "isthmus_origin text, isthmus_seq bigint, isthmus_path text"
PASSWORD = "correct horse"
LEASE = 600.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with PostgresServer(tmp_path_factory.mktemp("postgres")) as started:
        yield started


class Tables:
    """Tables of one test, with plain clients and adapters that are closed in the end."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name
        self.logs: list[PostgresLog] = []
        self.plain = server.connect()

    def create(self, columns: str = "id bigserial PRIMARY KEY, body text", name: str = "") -> str:
        table = f"public.{self.name}{name}"
        self.plain.execute(f"CREATE TABLE {table} ({columns}, {OURS})")
        return table

    def settings(self, *tables: str, **options: str) -> LogSettings:
        given = {name.replace("_", "-"): value for name, value in options.items()}
        return LogSettings(
            system="madrid",
            provider="postgres",
            url=self.server.url,
            streams=tables,
            state=self.name,
            options=given,
        )

    def log(self, *tables: str, **options: str) -> PostgresLog:
        self.logs.append(PostgresLog(self.settings(*tables, **options)))
        return self.logs[-1]

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        async def all_of_it() -> None:
            try:
                async with asyncio.timeout(seconds(60)):
                    await test
            finally:
                for log in self.logs:
                    await log.close()

        asyncio.run(all_of_it())


@pytest.fixture
def tables(server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Tables]:
    name = f"t{abs(hash(request.node.name)):x}"
    made = Tables(server, name)
    yield made
    made.plain.close()


async def read(log: PostgresLog, count: int, after: str = BEGINNING, entries: int = 1000) -> tuple[list[Entry], str]:
    found: list[Entry] = []
    while len(found) < count:
        some, after = await log.read(after, entries, 1 << 20)
        found += some
    return found, after


def bodies(entries: Sequence[Entry]) -> list[bytes]:
    return [entry.content.body for entry in entries]


def foreign(*bodies: bytes, first: int = 1, part: int = 0) -> list[Entry]:
    return [Entry(Content(body), "far/clients", first + index, "far,madrid", part) for index, body in enumerate(bodies)]


# The suite ------------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(seconds(400))
@pytest.mark.parametrize("part", range(4))
def test_postgres_keeps_every_promise(part: int) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    outcomes = asyncio.run(run_suite(PostgresTrial(), CHECKS[part::4], seed))
    wrong = [f"{each.name}: {each.why}" for each in outcomes if each.verdict == "broken"]
    assert not wrong, f"seed {seed}: " + "; ".join(wrong)
    assert {each.name for each in outcomes if each.verdict == "not possible"} <= {"lost-tail"}


# The order of commits -------------------------------------------------------------------------------------------------


def test_a_row_whose_transaction_was_slow_comes_behind_those_that_were_committed_before(tables: Tables) -> None:
    table = tables.create()

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        with tables.server.connect() as slow:
            slow.autocommit = False
            slow.execute(f"INSERT INTO {table} (body) VALUES ('slow')")
            tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('quick')")
            found, after = await read(log, 1)
            assert bodies(found) == [b"quick"]
            slow.commit()
            tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('an answer to slow')")
        found, _ = await read(log, 2, after)
        assert bodies(found) == [b"slow", b"an answer to slow"]
        ids = [dict(entry.content.headers)[b"id"] for entry in found]
        assert ids == [b"1", b"3"], "the slow row has the smaller id: whoever follows ids would have lost it"

    tables.run(test())


def test_several_tables_are_one_log_in_one_order(tables: Tables) -> None:
    one, other = tables.create(name="_a"), tables.create(name="_b")

    async def test() -> None:
        log = tables.log(one, other)
        await log.open()
        for number in range(20):
            table = (one, other)[number * 7 % 3 % 2]
            tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('{number}')")
        await log.claim("test", LEASE)
        mixed = [entry._replace(part=entry.seq % 3 % 2) for entry in foreign(*(b"in %d" % n for n in range(60)))]
        await log.append(mixed, b"60", b"")
        found, _ = await read(log, 80)
        assert bodies(found) == [b"%d" % n for n in range(20)] + [b"in %d" % n for n in range(60)]
        assert [entry.part for entry in found[20:]] == [entry.part for entry in mixed]
        assert {entry.content.subject for entry in found} == {one, other}

    tables.run(test())


def test_a_large_transaction_is_read_in_slices_and_from_its_middle(tables: Tables) -> None:
    table = tables.create()

    async def test() -> None:
        log, other = tables.log(table), tables.log(table)
        await log.open()
        tables.plain.execute(f"INSERT INTO {table} (body) SELECT n::text FROM generate_series(1, 5000) n")
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('5001')")
        found, after = await read(log, 1, entries=700)
        await other.open()
        rest, _ = await read(other, 5001 - len(found), after)
        assert bodies(found + rest) == [b"%d" % n for n in range(1, 5002)]

    tables.run(test())


def test_rows_count_as_they_were_inserted_whatever_becomes_of_them(tables: Tables) -> None:
    table = tables.create()

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        with tables.plain.transaction():
            tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('outbox')")
            tables.plain.execute(f"DELETE FROM {table}")
        with tables.plain.transaction(force_rollback=True):
            tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('never')")
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('first')")
        tables.plain.execute(f"UPDATE {table} SET body = 'second'")
        tables.plain.execute(f"TRUNCATE {table}")
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('third')")
        found, _ = await read(log, 3)
        assert bodies(found) == [b"outbox", b"first", b"third"]

    tables.run(test())


def test_rows_of_partitions_are_rows_of_their_table(tables: Tables) -> None:
    table = f"public.{tables.name}"
    tables.plain.execute(f"CREATE TABLE {table} (day int, body text, {OURS}) PARTITION BY RANGE (day)")
    for day in range(2):
        tables.plain.execute(f"CREATE TABLE {table}_{day} PARTITION OF {table} FOR VALUES FROM ({day}) TO ({day + 1})")

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        await log.claim("test", LEASE)
        tables.plain.execute(f"INSERT INTO {table} (day, body) VALUES (1, 'a'), (0, 'b')")
        await log.append([Entry(Content(b"c", [(b"day", b"1")]), "far/clients", 1, "far")], b"1", b"")
        found, _ = await read(log, 3)
        assert bodies(found) == [b"a", b"b", b"c"]

    tables.run(test())


# Where a log begins, and what becomes of the slot ---------------------------------------------------------------------


def test_rows_from_before_the_slot_are_not_passed_over_in_silence(tables: Tables) -> None:
    table = tables.create()
    tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('old')")

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        with pytest.raises(LogProblem, match='Write from = "now"'):
            await log.find("start")
        now = await log.find("now")
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('new')")
        assert bodies((await read(log, 1, now))[0]) == [b"new"]

    tables.run(test())


def test_the_slot_follows_the_checkpoint_and_who_comes_next_reads_on(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.adapters.postgres.log.MOVE_EVERY", 0.0)
    table = tables.create()
    slot = name_of(tables.name)

    def held() -> int:
        row = tables.plain.execute(
            "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone()
        assert row is not None
        return int(row[0])

    async def until_moved(log: PostgresLog, before: int) -> None:
        while held() <= before:
            await log.renew(LEASE)
            await asyncio.sleep(0.02)

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        await log.claim("first", LEASE)
        tables.plain.execute(f"INSERT INTO {table} (body) SELECT n::text FROM generate_series(1, 100) n")
        tables.plain.execute(f"INSERT INTO {table} (body) SELECT n::text FROM generate_series(101, 200) n")
        begin = held()
        found, after = await read(log, 110, entries=10)
        await log.note(b"behind these", after)
        await until_moved(log, begin)
        other = tables.log(table)
        await other.open()
        rest, _ = await read(other, 200 - len(found), after)
        assert bodies(found + rest) == [b"%d" % n for n in range(1, 201)]
        with pytest.raises(Trimmed):
            await other.read("/".join([*after.split("/")[:3], "0-1", "0", "0"]), 10, 1 << 20)

    tables.run(test())


def test_others_writing_to_the_database_does_not_keep_its_log_for_ever(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.adapters.postgres.log.MOVE_EVERY", 0.0)
    monkeypatch.setattr("isthmus.adapters.postgres.changes.ANSWER_EVERY", 0.0)
    table = tables.create()
    tables.plain.execute(f"CREATE TABLE {tables.name}_other (words text)")
    slot = name_of(tables.name)

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        await log.claim("first", LEASE)
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('one')")
        _, after = await read(log, 1)
        await log.note(b"behind one", after)
        tables.plain.execute(f"INSERT INTO {tables.name}_other SELECT repeat('x', 100) FROM generate_series(1, 5000)")
        row = tables.plain.execute("SELECT pg_current_wal_lsn()").fetchone()
        assert row is not None
        passed = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        while tables.plain.execute(passed, [row[0], slot]).fetchone() != (True,):
            assert not (await log.read(after, 10, 1 << 20)).entries
            await log.renew(LEASE)
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('two')")
        other = tables.log(table)
        await other.open()
        assert bodies((await read(other, 1, after))[0]) == [b"two"]

    tables.run(test())


def test_a_slot_that_was_dropped_is_a_loss_that_can_be_accepted(tables: Tables) -> None:
    table = tables.create()

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('one')")
        _, after = await read(log, 1)
        await log.close()
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('lost')")
        tables.plain.execute("SELECT pg_drop_replication_slot(%s)", [name_of(tables.name)])
        with pytest.raises(Trimmed, match="dropped"):
            await log.read(after, 10, 1 << 20)
        begin = await log.find("start")
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('two')")
        assert bodies((await read(log, 1, begin))[0]) == [b"two"]

    tables.run(test())


def test_a_table_made_anew_is_read_from_its_start_once_the_loss_is_accepted(tables: Tables) -> None:
    table = tables.create()

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('one')")
        _, after = await read(log, 1)
        tables.plain.execute(f"DROP TABLE {table}")
        tables.create()
        with pytest.raises(Recreated, match="made anew"):
            await read(log, 1, after)
        begin = await log.find("start")
        tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('two')")
        assert bodies((await read(log, 1, begin))[0])[-1] == b"two"

    tables.run(test())


def test_a_slot_that_fell_behind_what_the_server_keeps_is_a_loss(tmp_path: Path) -> None:
    limits = ("max_slot_wal_keep_size=1MB", "max_wal_size=32MB", "min_wal_size=32MB")
    with PostgresServer(tmp_path, settings=limits) as small:
        tables = Tables(small, "small")
        table = tables.create()

        async def test() -> None:
            log = tables.log(table)
            assert any("max_slot_wal_keep_size is 1MB" in line for line in await log.open())
            tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('one')")
            _, after = await read(log, 1)
            await log.close()
            for _ in range(5):
                tables.plain.execute("SELECT pg_switch_wal()")
                tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('lost')")
            tables.plain.execute("CHECKPOINT")
            with pytest.raises(Trimmed):
                await log.read(after, 10, 1 << 20)
            await log.open()
            with pytest.raises(Trimmed):
                await log.read(after, 10, 1 << 20)

        try:
            tables.run(test())
        finally:
            tables.plain.close()


def test_a_server_that_was_set_back_to_an_older_copy_is_not_read_on(tmp_path: Path) -> None:
    with PostgresServer(tmp_path / "server") as restored:
        tables = Tables(restored, "copied")
        table = tables.create()
        copy = tmp_path / "copy"

        async def test() -> None:
            log = tables.log(table)
            await log.open()
            tables.plain.execute(f"INSERT INTO {table} (body) VALUES ('kept')")
            tables.plain.close()
            await log.close()
            restored.stop()
            shutil.copytree(restored.data, copy, copy_function=shutil.copy2)
            restored.start()
            with restored.connect() as plain:
                plain.execute(f"INSERT INTO {table} (body) VALUES ('forgotten')")
            found, after = await read(log, 2)
            assert bodies(found) == [b"kept", b"forgotten"]
            await log.close()
            restored.stop()
            owner = restored.data.stat()
            shutil.rmtree(restored.data)
            shutil.copytree(copy, restored.data)
            for path in (restored.data, *restored.data.rglob("*")):
                shutil.chown(path, owner.st_uid, owner.st_gid)
            restored.start()
            with pytest.raises(Recreated, match="set back"):
                await log.read(after, 10, 1 << 20)
            with restored.connect() as plain:
                plain.execute(f"INSERT INTO {table} (body) SELECT 'new' FROM generate_series(1, 2000)")
            with pytest.raises(Recreated, match="not there"):
                await log.read(after, 10, 1 << 20)

        tables.run(test())


# What goes into which column ------------------------------------------------------------------------------------------


def test_headers_fill_the_columns_of_their_names_and_the_table_fills_the_rest(tables: Tables) -> None:
    table = tables.create(
        "id bigint GENERATED ALWAYS AS IDENTITY, body jsonb, amount numeric(8, 2) DEFAULT 7, kind varchar(5), "
        "raw bytea, size int GENERATED ALWAYS AS (length(body::text)) STORED, customer text, at timestamptz, more json"
    )

    async def test() -> None:
        log = tables.log(table, key_column="customer", time_column="at", headers_column="more")
        await log.open()
        await log.claim("test", LEASE)
        headers = [(b"id", b"99"), (b"kind", b"big"), (b"raw", b"\x00\xff"), (b"isthmus_seq", b"5"), (b"x", b"\xff")]
        content = Content(b'{"a": 1}', headers, "", b"c 1", 1_700_000_000_123)
        await log.append([Entry(content, "far/clients", 1, "far"), *foreign(b"{}", first=2)], b"2", b"")
        query = f"SELECT amount::text, kind, raw, customer, extract(epoch FROM at)::text, isthmus_seq FROM {table}"
        assert tables.plain.execute(query).fetchall() == [
            ("7.00", "big", b"\x00\xff", "c 1", "1700000000.123000", 1),
            ("7.00", None, None, None, None, 2),
        ]
        (first, second), _ = await read(log, 2)
        assert first.content == Content(
            b'{"a": 1}',
            [
                (b"amount", b"7.00"),
                (b"kind", b"big"),
                (b"raw", b"\x00\xff"),
                (b"id", b"99"),
                (b"isthmus_seq", b"5"),
                (b"x", b"\xff"),
            ],
            table,
            b"c 1",
            1_700_000_000_123,
        )
        assert second.content.key is None
        assert second.content.time > 1_700_000_000_123, "the time of the commit stands in for the time"

    tables.run(test())


def test_what_a_client_wrote_into_our_columns_is_read_without_harm(tables: Tables) -> None:
    table = tables.create("body text, more text")

    async def test() -> None:
        log = tables.log(table, headers_column="more")
        await log.open()
        odd = ("[[1, 2]]", '{"a": 1}', "[" * 50_000, '[["\\ud800", ""]]')
        for more in ('[["isthmus-origin", "x"], ["a", "b"]]', *odd):
            tables.plain.execute(f"INSERT INTO {table} VALUES (NULL, %s, 'far/clients', -5)", [more])
        found, _ = await read(log, 5)
        assert [(entry.origin, entry.seq, entry.path) for entry in found] == [("far/clients", 0, "")] * 5
        assert {entry.content.place for entry in found} == {-1}
        assert found[0].content.headers == [(b"a", b"b")]
        assert all(entry.content.headers[0][0] == b"more" for entry in found[1:])

    tables.run(test())


def test_a_row_from_before_our_columns_were_there_is_a_row_like_others(tables: Tables) -> None:
    table = f"public.{tables.name}"
    name = name_of(tables.name)
    tables.plain.execute(f"CREATE TABLE {table} (body text)")
    tables.plain.execute(f"CREATE PUBLICATION {name} FOR TABLE {table} WITH (publish = 'insert')")
    tables.plain.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    tables.plain.execute(f"INSERT INTO {table} VALUES ('before')")
    for column in OURS.split(", "):
        tables.plain.execute(f"ALTER TABLE {table} ADD COLUMN {column}")
    tables.plain.execute(f"INSERT INTO {table} VALUES ('after')")

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        found, _ = await read(log, 2, await log.find("start"))
        assert [(entry.content.body, entry.origin) for entry in found] == [(b"before", ""), (b"after", "")]

    tables.run(test())


@pytest.mark.parametrize(
    ("columns", "header", "value", "reason"),
    [
        ("amount int", b"amount", b"many", "invalid input syntax for type integer"),
        ("kind varchar(3)", b"kind", b"longer", "value too long"),
        ("kind text", b"kind", b"a\0b", "invalid byte sequence"),
        ("kind text", b"kind", b"\xff", "invalid byte sequence"),
        ("kind text UNIQUE", b"kind", b"taken", "already exists"),
        ("kind text UNIQUE DEFERRABLE INITIALLY DEFERRED", b"kind", b"taken", "already exists"),
        ("kind text CHECK (kind <> 'bad')", b"kind", b"bad", "violates check constraint"),
        ("kind text NOT NULL", b"other", b"", "null value in column"),
        ("day date", b"day", b"2026-02-30", "out of range"),
    ],
)
def test_what_a_table_does_not_take_is_refused_by_its_index(
    tables: Tables, columns: str, header: bytes, value: bytes, reason: str
) -> None:
    table = tables.create(f"body text, {columns}")
    if "UNIQUE" in columns:
        tables.plain.execute(f"INSERT INTO {table} (kind) VALUES ('taken')")

    async def test() -> None:
        log = tables.log(table)
        await log.open()
        await log.claim("test", LEASE)
        entries = foreign(*(b"%d" % n for n in range(50)))
        if "NOT NULL" in columns:
            entries = [each._replace(content=Content(b"fine", [(b"kind", b"fine")])) for each in entries]
        entries[37] = entries[37]._replace(content=Content(b"odd", [(header, value)]))
        with pytest.raises(Refused) as refused:
            await log.append(entries, b"50", b"")
        assert refused.value.index == 37
        assert reason in refused.value.reason
        await log.append(entries[:37], b"37", b"")
        assert tables.plain.execute(f"SELECT count(*) FROM {table} WHERE isthmus_seq > 0").fetchone() == (37,)

    tables.run(test())


def test_an_append_of_many_short_runs_keeps_its_order(tables: Tables) -> None:
    one, other = tables.create(name="_a"), tables.create(name="_b")

    async def test() -> None:
        log = tables.log(one, other)
        await log.open()
        await log.claim("test", LEASE)
        entries = [each._replace(part=each.seq % 2) for each in foreign(*(b"%d" % n for n in range(4096)))]
        await log.append(entries, b"4096", b"")
        found, _ = await read(log, 4096)
        assert [entry.seq for entry in found] == list(range(1, 4097))

    tables.run(test())


def test_a_holder_that_was_stopped_inside_a_transaction_does_not_keep_its_successor_away(tables: Tables) -> None:
    table = tables.create()

    async def test() -> None:
        log, successor = tables.log(table), tables.log(table)
        await log.open()
        await successor.open()
        await log.claim("stopped", 0.1)
        with tables.server.connect() as stopped:
            stopped.autocommit = False
            stopped.execute("UPDATE isthmus.state SET record = 'half' WHERE log = %s", [tables.name])
            state = None
            while state is None:
                with suppress(Unavailable):
                    state = await successor.claim("next", LEASE)
            assert state.record == b""
            with pytest.raises(psycopg.OperationalError):
                stopped.execute("COMMIT")

    tables.run(test())


def test_what_comes_in_waits_while_somebody_has_locked_the_table_or_all_connections(tmp_path: Path) -> None:
    with PostgresServer(tmp_path, settings=("max_connections=6", "superuser_reserved_connections=0")) as small:
        tables = Tables(small, "locked")
        table = tables.create()

        async def test() -> None:
            log = tables.log(table)
            await log.open()
            await log.claim("test", LEASE)
            with tables.plain.transaction():
                tables.plain.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                with pytest.raises(Unavailable, match="lock timeout"):
                    await log.append(foreign(b"1"), b"1", b"")
            await log.append(foreign(b"1"), b"1", b"")
            await log.close()
            with ExitStack() as everything:
                with suppress(psycopg.OperationalError):
                    while True:
                        everything.enter_context(small.connect())
                with pytest.raises(Unavailable, match="too many clients"):
                    await log.append(foreign(b"2", first=2), b"2", b"1")
            while True:
                with suppress(Unavailable):
                    await log.append(foreign(b"2", first=2), b"2", b"1")
                    break
            assert tables.plain.execute(f"SELECT array_agg(isthmus_seq) FROM {table}").fetchone() == ([1, 2],)

        try:
            tables.run(test())
        finally:
            tables.plain.close()


# What has to be set up ------------------------------------------------------------------------------------------------


@contextmanager
def role(server: PostgresServer, name: str, *rights: str) -> Iterator[str]:
    """A role that may do so much, and the url by which it calls."""
    with server.connect() as plain:
        plain.execute(f"CREATE ROLE {name} LOGIN {' '.join(rights)}")
    yield server.url.replace("postgres@", f"{name}@", 1)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("", {}, "ADD COLUMN isthmus_origin text, ADD COLUMN isthmus_seq bigint, ADD COLUMN isthmus_path text;"),
        (f", {OURS}", {"body-column": "bodi"}, 'has no column "bodi". Look at body-column'),
        (f", {OURS}", {"key-column": "customer"}, "Look at key-column"),
        (f", {OURS.replace('bigint', 'int')}", {}, "isthmus_seq of"),
    ],
)
def test_a_table_that_will_not_do_is_named_with_the_way_out(
    tables: Tables, columns: str, options: dict[str, str], words: str
) -> None:
    tables.plain.execute(f"CREATE TABLE public.{tables.name} (body text{columns})")

    async def test() -> None:
        log = tables.log(f"public.{tables.name}", **options)
        with pytest.raises(LogProblem) as problem:
            await log.open()
        assert words in str(problem.value)

    tables.run(test())


@pytest.mark.parametrize("name", ["nothing", "no such", 'a"b', "a.b.c.d", "x;y", "pg_catalog.pg_tables"])
def test_what_is_no_table_is_refused_in_words(tables: Tables, name: str) -> None:
    async def test() -> None:
        log = tables.log(name)
        with pytest.raises(LogProblem):
            await log.open()

    tables.run(test())


def test_a_role_without_rights_is_told_the_statements_to_run(tables: Tables) -> None:
    table = tables.create()
    name = f"r_{tables.name}"

    async def opens(url: str) -> str:
        log = PostgresLog(LogSettings(**{**_fields(tables.settings(table)), "url": url}))
        tables.logs.append(log)
        return await said_by(log)

    async def test() -> None:
        with role(tables.server, name) as url:
            assert f"ALTER ROLE {name} REPLICATION" in await opens(url)
            tables.plain.execute(f"ALTER ROLE {name} REPLICATION")
            said = []
            while problem := await opens(url):
                # Doing what it says is enough in the end.
                assert problem not in said
                said.append(problem)
                statements = problem.partition("Run: ")[2] or problem.partition("may run: ")[2]
                assert statements, problem
                for statement in statements.rstrip(";").split("; "):
                    tables.plain.execute(statement)
            assert any("CREATE PUBLICATION" in problem for problem in said)
            log = tables.logs[-1]
            await log.claim("test", LEASE)
            await log.append(foreign(b"1"), b"1", b"")
            assert bodies((await read(log, 1))[0]) == [b"1"]

    tables.run(test())


async def said_by(log: PostgresLog) -> str:
    """What is in the way; nothing if the log can be opened."""
    try:
        await log.open()
    except LogProblem as problem:
        return str(problem)
    return ""


def _fields(settings: LogSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__struct_fields__}


def secured(tmp_path: Path, authority: Authority) -> AbstractContextManager[PostgresServer]:
    files = authority.issue("server", host="localhost")
    return PostgresServer(tmp_path / "server", password=PASSWORD, certificate=files.certificate, key=files.key)


def test_passwords_and_certificates_are_looked_at_and_never_told(tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "other")
    with secured(tmp_path, ours) as server:
        tables = Tables(server, "secured")
        table = tables.create()
        url = server.url.replace("127.0.0.1", "localhost")

        async def opens(**options: str) -> str:
            settings = tables.settings(table, **options)
            log = PostgresLog(LogSettings(**{**_fields(settings), "url": url}))
            tables.logs.append(log)
            return await said_by(log)

        async def test() -> None:
            assert "password" in await opens()
            assert "password authentication failed" in await opens(password="guess")
            assert await opens(password=PASSWORD) == ""
            assert await opens(password=PASSWORD, ca_file=str(ours.path)) == ""
            assert "certificate" in await opens(password=PASSWORD, ca_file=str(theirs.path))
            assert "guess" not in await opens(password="guess")
            (in_use,) = tables.plain.execute(
                "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                "WHERE ssl AND application_name = 'isthmus'"
            ).fetchone() or (0,)
            assert in_use

        try:
            tables.run(test())
        finally:
            tables.plain.close()


def test_a_server_that_does_not_log_for_decoding_is_told_so(tmp_path: Path) -> None:
    with PostgresServer(tmp_path, settings=("wal_level=replica",), fsync=False) as server:
        tables = Tables(server, "replica")
        table = tables.create()

        async def test() -> None:
            with pytest.raises(LogProblem, match="ALTER SYSTEM SET wal_level = 'logical'; and restart"):
                await tables.log(table).open()

        try:
            tables.run(test())
        finally:
            tables.plain.close()


def test_a_server_that_does_not_flush_is_warned_of(tmp_path: Path) -> None:
    with PostgresServer(tmp_path, fsync=False) as server:
        tables = Tables(server, "unflushed")
        table = tables.create("body text, kind text NOT NULL")

        async def test() -> None:
            warnings = await tables.log(table).open()
            for words in ("fsync is off", "max_slot_wal_keep_size is unlimited", "column kind of"):
                assert any(words in line for line in warnings), warnings

        try:
            tables.run(test())
        finally:
            tables.plain.close()


def test_a_server_that_is_not_there_is_asked_again_later(tmp_path: Path) -> None:
    server = PostgresServer(tmp_path)
    settings = LogSettings(system="madrid", provider="postgres", url=server.url, streams=("t",), state="t")

    async def test() -> None:
        with pytest.raises(Unavailable, match="cannot be reached"):
            await PostgresLog(settings).open()

    asyncio.run(test())
    server.stop()
