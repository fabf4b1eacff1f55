"""What has to be there before a join: a state, the tables with our columns, a publication, a slot.

What is missing is made, if the role may. If it may not, the `LogProblem` has the statements for somebody who may.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from zlib import crc32

import psycopg
from psycopg import sql

from isthmus.adapters.postgres.changes import problem_of
from isthmus.adapters.postgres.session import RefusedRow, Session, connect
from isthmus.adapters.postgres.table import OURS, Column, Roles, Table
from isthmus.runtime.log.interface import LogProblem, LogSettings, Unavailable

OLDEST = 130000
_KEY = crc32(b"isthmus")
SLOT_PATIENCE = 60.0
"""Seconds for a new slot, which waits for every transaction that was begun before it."""

STATE = """CREATE TABLE IF NOT EXISTS isthmus.state (
    log text PRIMARY KEY, token bigint NOT NULL DEFAULT 0,
    owner text NOT NULL DEFAULT '', holder text NOT NULL DEFAULT '',
    lease_until timestamptz NOT NULL DEFAULT '-infinity', record bytea NOT NULL DEFAULT '',
    checkpoint bytea NOT NULL DEFAULT '', noted bigint NOT NULL DEFAULT 0,
    began timestamptz, older boolean NOT NULL DEFAULT false, passed_from text NOT NULL DEFAULT '',
    passed_to bigint NOT NULL DEFAULT 0) WITH (fillfactor = 50)"""
PARKED = """CREATE TABLE IF NOT EXISTS isthmus.parked (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, log text NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    reason text NOT NULL, origin text NOT NULL, seq bigint NOT NULL, path text NOT NULL, part integer NOT NULL,
    content bytea NOT NULL)"""
"""`state`: one row for each log. `began` and `older`: when its slot was made, and whether the tables held rows by then.
Between the position `passed_from` and `passed_to` nothing of ours was written, so the slot may be there already."""

_SCHEMA = ("CREATE SCHEMA IF NOT EXISTS isthmus", STATE, PARKED)

_SETTINGS = """SELECT current_setting('server_version_num')::int, current_setting('server_version'),
    current_setting('wal_level'), current_setting('fsync') = 'on', current_setting('full_page_writes') = 'on',
    current_setting('max_slot_wal_keep_size'), pg_is_in_recovery(),
    (SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user), quote_ident(current_user)"""

_MAY_USE = """SELECT bool_and(has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT')
    AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE')
    AND has_table_privilege(c.oid, 'DELETE')) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = 'isthmus' AND c.relname IN ('state', 'parked') HAVING count(*) = 2"""

_TABLE = """SELECT c.oid::bigint, format('%I.%I', n.nspname, c.relname), c.relkind::text, c.relpersistence::text,
    has_table_privilege(c.oid, 'SELECT'), quote_ident(current_user)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)"""

_COLUMNS = """SELECT a.attname::text, a.atttypid::bigint, format_type(a.atttypid, -1), pg_get_expr(d.adbin, d.adrelid),
    a.attidentity <> '' OR a.attgenerated <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE '%nextval(%', false),
    has_column_privilege(a.attrelid, a.attnum, 'INSERT'), a.attnotnull, CASE WHEN a.attidentity = '' AND
    NOT has_sequence_privilege(pg_get_serial_sequence($2, a.attname), 'USAGE')
    THEN pg_get_serial_sequence($2, a.attname) END
    FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""


def name_of(state: str) -> str:
    """The name of slot and publication, of the letters that PostgreSQL allows in it."""
    plain = re.sub("[^a-z0-9_]", "_", state.lower())[:40]
    return f"isthmus_{plain}" if plain == state else f"isthmus_{plain}_{crc32(state.encode()):08x}"


@asynccontextmanager
async def alone(session: Session, where: str) -> AsyncIterator[None]:
    """One host at a time sets up what is missing: `CREATE … IF NOT EXISTS` fails where two do it at once."""
    ((ours,),) = await session.rows("SELECT pg_try_advisory_lock($1)", (_KEY,))
    if not ours:
        raise Unavailable(f"{where}: another host is setting up what is missing there")
    try:
        yield
    finally:
        with suppress(Unavailable):
            await session.rows("SELECT pg_advisory_unlock($1)", (_KEY,))


async def look_at_server(session: Session, where: str) -> list[str]:
    """Whether a log can be here at all; and what weakens its promises."""
    ((version, words, level, fsync, pages, keep, recovers, replicates, role),) = await session.rows(_SETTINGS)
    if version < OLDEST:
        raise LogProblem(f"{where} is PostgreSQL {words}, which is too old: it has to be {OLDEST // 10000} or newer")
    if recovers:
        raise Unavailable(f"{where} is a standby, which takes no writes")
    if level != "logical":
        raise LogProblem(
            f"{where}: wal_level is {level}, so nobody can read the order of commits. "
            "Run: ALTER SYSTEM SET wal_level = 'logical'; and restart the server"
        )
    if not replicates:
        raise LogProblem(f"{where}: the role may not read the log of the server. Run: ALTER ROLE {role} REPLICATION;")
    allowed = await session.rows(_MAY_USE)
    grants = (
        f"GRANT USAGE ON SCHEMA isthmus TO {role}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA isthmus TO {role}",
    )
    if not allowed:
        await _make(session, where, _SCHEMA, grants)
    elif not allowed[0][0]:
        raise LogProblem(f"{where}: the role may not use what isthmus keeps there. Run: {'; '.join(grants)};")
    warnings = []
    if not fsync or not pages:
        name = "full_page_writes" if fsync else "fsync"
        warnings.append(f"{where}: {name} is off: a crash of the machine may lose what was confirmed, or the database")
    if keep == "-1":
        warnings.append(
            f"{where}: max_slot_wal_keep_size is unlimited: while isthmus is away the server keeps all that "
            "is written, until the disk is full"
        )
    else:
        warnings.append(
            f"{where}: max_slot_wal_keep_size is {keep}: if isthmus is further behind than that, entries are "
            "lost to the joined systems"
        )
    return warnings


async def find_tables(
    session: Session, settings: LogSettings, roles: Roles, where: str
) -> tuple[list[Table], list[str]]:
    """The tables of the streams, and what in them may have entries refused."""
    tables, warnings = [], []
    for stream in settings.streams:
        name = stream if "." in stream else f"public.{stream}"
        found = await session.rows(_TABLE, (name,))
        if not found:
            raise LogProblem(f"{where} has no table {name}. Look at stream, or create it; names are as SQL writes them")
        oid, written, kind, persistence, may_read, role = found[0]
        if kind not in ("r", "p") or persistence != "p":
            raise LogProblem(
                f"{where}: {written} is not a table that is kept in the server's log; only those can be joined"
            )
        rows = await session.rows(_COLUMNS, (oid, written))
        columns = [Column(*each[:6]) for each in rows]
        table = Table(stream, written, oid, columns, roles)
        _check(table, roles, where)
        needs = [f"GRANT SELECT ON {written} TO {role}"] if not may_read else []
        if any(not table.columns[name].open for name in (*OURS, *(name for _, name in roles.named()))):
            needs.append(f"GRANT INSERT ON {written} TO {role}")
        needs += [f"GRANT USAGE ON SEQUENCE {row[-1]} TO {role}" for row in rows if row[-1]]
        if needs:
            raise LogProblem(f"{where}: the role may not use {written}. Run: {'; '.join(needs)};")
        filled = {*roles, *OURS}
        for column, must in zip(columns, (row[6] for row in rows), strict=True):
            if must and not column.own and column.default is None and column.name not in filled:
                warnings.append(
                    f"{where}: column {column.name} of {written} is NOT NULL and has no default: an entry that comes "
                    "in without a header of that name is refused"
                )
        tables.append(table)
    return tables, warnings


def _check(table: Table, roles: Roles, where: str) -> None:
    missing = [f"ADD COLUMN {name} {kind}" for name, kind in OURS.items() if name not in table.columns]
    if missing:
        raise LogProblem(
            f"{where}: {table.sql} has no columns for what isthmus adds to a row that it brings in. "
            f"Run: ALTER TABLE {table.sql} {', '.join(missing)};"
        )
    for name, kind in OURS.items():
        if table.columns[name].type != kind:
            raise LogProblem(
                f"{where}: column {name} of {table.sql} is {table.columns[name].type}, and has to be {kind}"
            )
    for option, name in roles.named():
        if name not in table.columns:
            raise LogProblem(f'{where}: {table.sql} has no column "{name}". Look at {option}')


async def publish(session: Session, name: str, tables: Sequence[Table], where: str) -> None:
    """Have the slot carry the rows that are inserted into these tables, and nothing else."""
    found = await session.rows("SELECT pubinsert, puballtables FROM pg_publication WHERE pubname = $1", (name,))
    listed = ", ".join(table.sql for table in tables)
    if not found:
        options = "publish = 'insert', publish_via_partition_root = true"
        await _make(session, where, (f"CREATE PUBLICATION {name} FOR TABLE {listed} WITH ({options})",))
        return
    if not found[0][0]:
        raise LogProblem(
            f"{where}: publication {name} leaves out inserts. Run: ALTER PUBLICATION {name} SET (publish = 'insert');"
        )
    rows = await session.rows(
        "SELECT prrelid::bigint FROM pg_publication_rel JOIN pg_publication p ON p.oid = prpubid WHERE pubname = $1",
        (name,),
    )
    there = {oid for (oid,) in rows}
    absent = ", ".join(table.sql for table in tables if table.oid not in there)
    if absent and not found[0][1]:
        await _make(session, where, (f"ALTER PUBLICATION {name} ADD TABLE {absent}",))


async def make_slot(
    session: Session, address: dict[str, Any], settings: LogSettings, tables: Sequence[Table], where: str
) -> None:
    """Make the slot if there is none, and note whether the tables held rows that it will never carry.

    One that is there before our state was made is the operator's, who says by it that nothing before it counts.
    """
    name = name_of(settings.state)
    slots = await session.rows(
        "SELECT plugin::text, wal_status FROM pg_replication_slots WHERE slot_name = $1", (name,)
    )
    kept = await session.rows("SELECT began IS NOT NULL FROM isthmus.state WHERE log = $1", (settings.state,))
    if slots and slots[0][0] != "pgoutput":
        raise LogProblem(f"{where}: slot {name} is of {slots[0][0]}. Run: SELECT pg_drop_replication_slot('{name}');")
    if not kept:
        began = "now()" if slots else "NULL"
        await session.rows(f"INSERT INTO isthmus.state (log, began) VALUES ($1, {began})", (settings.state,))
        kept = [(bool(slots),)]
    if slots and (slots[0][1] == "lost" or not kept[0][0]):
        # Of no use any more, or left by somebody who ended while making it.
        await session.rows("SELECT pg_drop_replication_slot($1)", (name,))
        slots = []
    if not slots:
        older = await _make_slot(session, address, name, tables, where)
        # Of a log that we knew before, what was not read is missed by whoever reads from an old position.
        older = older and not kept[0][0]
        await session.rows("UPDATE isthmus.state SET began = now(), older = $2 WHERE log = $1", (settings.state, older))


async def _make_slot(session: Session, address: dict[str, Any], name: str, tables: Sequence[Table], where: str) -> bool:
    """Make the slot, and return whether the tables held rows in the very moment in which it begins."""
    connection = await connect(address, where, replication="database")
    try:
        async with asyncio.timeout(SLOT_PATIENCE):
            await connection.execute("SET lock_timeout = 0")
            statement = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT")
            cursor = await connection.execute(statement.format(sql.Identifier(name)))
            (_, _, snapshot, _), *_ = await cursor.fetchall()
            return await session.sees_rows(snapshot, [table.sql for table in tables])
    except TimeoutError:
        raise Unavailable(
            f"{where}: the slot waits for transactions that were begun before it and do not end"
        ) from None
    except psycopg.Error as error:
        raise problem_of(error, where) from None
    finally:
        await connection.close()


async def _make(session: Session, where: str, statements: Sequence[str], grants: Sequence[str] = ()) -> None:
    """Run these; if we may not, say them, with what else somebody who may has to run."""
    try:
        for statement in statements:
            await session.rows(statement)
    except (LogProblem, RefusedRow) as problem:
        words = "; ".join(re.sub(r"\s+", " ", each) for each in (*statements, *grants))
        raise LogProblem(f"{problem}. Have somebody who may run: {words};") from None
