"""Redis and Valkey in depth: refusals, servers in trouble, streams that were trimmed, deleted or set back, fields."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from certificates import Authority
from hypothesis import given
from hypothesis import strategies as st
from patience import seconds

from isthmus.adapters.redis import RedisLog
from isthmus.adapters.redis.fields import entry_of, fields_of
from isthmus.lab.brokers.redis import ValkeyServer
from isthmus.runtime.log.content import Content
from isthmus.runtime.log.interface import (
    BEGINNING,
    Entry,
    LogProblem,
    LogSettings,
    Position,
    Recreated,
    Refused,
    Superseded,
    Trimmed,
    Unavailable,
)

SECRET = "sesame-4711"
MUCH = 1 << 20
FAST = {"appendonly": "no"}
Result = TypeVar("Result")


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyServer]:
    """One that keeps nothing, shared by tests that leave it as it was."""
    with ValkeyServer(tmp_path_factory.mktemp("valkey"), FAST) as server:
        yield server


@pytest.fixture
def plain(valkey: ValkeyServer) -> Iterator[Any]:
    """A client that knows nothing of us, on an empty server."""
    with redis.Redis(port=valkey.port) as client:
        client.flushall()
        yield client


def at(server: ValkeyServer, *streams: str, **options: str) -> LogSettings:
    named = {key.replace("_", "-"): value for key, value in options.items()}
    return LogSettings(
        system="shop", provider="redis", url=server.url, streams=streams or ("orders",), state="shop", options=named
    )


@asynccontextmanager
async def opened(settings: LogSettings) -> Any:
    log = RedisLog(settings)
    try:
        await log.open()
        yield log
    finally:
        await log.close()


def run(work: Callable[[], Awaitable[Result]]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(seconds(60)):
            return await work()

    return asyncio.run(bounded())


def warnings_of(settings: LogSettings) -> str:
    async def work() -> Sequence[str]:
        log = RedisLog(settings)
        try:
            return await log.open()
        finally:
            await log.close()

    return "\n".join(run(work))


def problem_of(settings: LogSettings) -> str:
    with pytest.raises(LogProblem) as problem:
        warnings_of(settings)
    return str(problem.value)


def bodies(entries: Sequence[Entry]) -> list[bytes]:
    return [entry.content.body for entry in entries]


async def until(holds: Callable[[], bool]) -> None:
    while True:
        if holds():
            return
        await asyncio.sleep(0.01)


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """As the driver does: until the broker is available."""
    while True:
        try:
            return await call()
        except Unavailable:
            await asyncio.sleep(0.01)


async def read_all(log: RedisLog, after: Position = BEGINNING) -> tuple[list[Entry], Position]:
    """Everything that is there, of the short streams that there are here: less than a first slice has."""
    some, after = await log.read(after, 1000, MUCH)
    assert len(some) < 64
    return list(some), after


# Who may come in ------------------------------------------------------------------------------------------------------


def test_a_password_that_is_missing_or_wrong_is_refused_with_the_way_out_and_without_the_password(
    tmp_path: Path,
) -> None:
    with ValkeyServer(tmp_path, FAST, password=SECRET) as server:
        assert "password-file" in problem_of(at(server))
        wrong = problem_of(at(server, password="not-" + SECRET))
        assert "password-file" in wrong
        assert SECRET not in wrong
        assert "appendonly is off" in warnings_of(at(server, password=SECRET))
        assert "appendonly is off" in warnings_of(at(server, username="default", password=SECRET))


def test_a_server_without_passwords_refuses_one_without_repeating_it(valkey: ValkeyServer) -> None:
    text = problem_of(at(valkey, username="nobody", password=SECRET))
    assert SECRET not in text


def test_a_user_with_the_rights_that_the_text_names_is_enough(valkey: ValkeyServer, plain: Any) -> None:
    plain.execute_command("ACL", "SETUSER", "bare", "on", f">{SECRET}", "~*", "+ping", "+client|setname")
    refused = problem_of(at(valkey, username="bare", password=SECRET))
    assert "may not do what a join needs" in refused
    rights = [word for word in refused.split() if word.startswith("+")]
    keys = ("~orders", "~{orders}:isthmus:*")
    plain.execute_command("ACL", "SETUSER", "joiner", "on", f">{SECRET}", *keys, *rights)

    async def work() -> None:
        async with opened(at(valkey, username="joiner", password=SECRET)) as log:
            assert await log.claim("me", 60)
            await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")
            await log.park(Entry(Content(b"2"), "far/p", 2, "far"), "no", b"2", b"1")
            await log.unpark((await log.parked(1))[0].id)
            await log.note(b"x")
            await log.renew(60)
            assert bodies((await read_all(log))[0]) == [b"1"]
            await log.release()

    run(work)


def test_a_host_that_is_not_there_is_unavailable() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        settings = LogSettings(
            system="shop", provider="redis", url=f"redis://127.0.0.1:{held.getsockname()[1]}", streams=("s",), state="s"
        )
        with pytest.raises(Unavailable, match="cannot be reached"):
            warnings_of(settings)


def test_a_server_that_speaks_something_else_is_a_problem() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            call, _ = listener.accept()
            with call, suppress(ConnectionError):
                call.sendall(b"220 mail.example ESMTP\r\n" * 10)
                while call.recv(1000):
                    pass

        thread = threading.Thread(target=greet)
        thread.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        settings = LogSettings(system="shop", provider="redis", url=url, streams=("s",), state="s")
        assert "does not speak the protocol of Redis" in problem_of(settings)
        thread.join()


@pytest.mark.parametrize("path", ["99", "x"])
def test_a_database_that_is_not_there_is_named(valkey: ValkeyServer, path: str) -> None:
    settings = LogSettings(
        system="shop", provider="redis", url=f"redis://127.0.0.1:{valkey.port}/{path}", streams=("s",), state="s"
    )
    assert "url" in problem_of(settings)


def test_the_database_in_the_url_is_the_one_that_is_read(valkey: ValkeyServer, plain: Any) -> None:
    with redis.Redis(port=valkey.port, db=3) as third:
        third.xadd("orders", {"body": "third"})
    plain.xadd("orders", {"body": "first"})
    settings = LogSettings(
        system="shop", provider="redis", url=f"redis://127.0.0.1:{valkey.port}/3", streams=("orders",), state="s"
    )

    async def work() -> list[bytes]:
        async with opened(settings) as log:
            return bodies((await read_all(log))[0])

    assert run(work) == [b"third"]


def test_a_key_that_is_no_stream_is_a_problem_at_once_and_later(valkey: ValkeyServer, plain: Any) -> None:
    plain.rpush("orders", "a list")
    assert "WRONGTYPE" in problem_of(at(valkey))

    async def work() -> None:
        plain.delete("orders")
        async with opened(at(valkey)) as log:
            await log.claim("me", 60)
            plain.rpush("orders", "a list")
            with pytest.raises(LogProblem, match="WRONGTYPE"):
                await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")
            with pytest.raises(LogProblem, match="WRONGTYPE"):
                await log.read(BEGINNING, 10, MUCH)
            assert (await log.state()).record == b""

    run(work)


def test_patterns_are_refused_but_a_stream_may_have_odd_signs(valkey: ValkeyServer, plain: Any) -> None:
    assert "Name each stream" in problem_of(at(valkey, "ship.*"))
    plain.xadd("ship.*", {"body": "1"})
    assert warnings_of(at(valkey, "ship.*"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"appendonly": "no"}, "appendonly is off"),
        ({"appendonly": "yes", "appendfsync": "no"}, "appendfsync is no"),
        ({"appendonly": "yes", "appendfsync": "everysec"}, "appendfsync is everysec"),
        ({"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"}, "any key, streams and isthmus's own too"),
        ({"maxmemory": "100mb", "maxmemory-policy": "volatile-ttl"}, "keys that expire"),
    ],
)
def test_what_weakens_the_promises_is_said(tmp_path: Path, settings: dict[str, str], words: str) -> None:
    with ValkeyServer(tmp_path, settings) as server:
        said = warnings_of(at(server))
        assert words in said
        assert "there is no replica" in said


def test_a_sound_server_is_warned_of_for_its_one_disk_only(tmp_path: Path) -> None:
    with ValkeyServer(tmp_path) as server:
        assert warnings_of(at(server)).splitlines() == [
            "there is no replica: the log is as safe as the disk of this one server"
        ]


def test_a_stream_that_expires_is_said(valkey: ValkeyServer, plain: Any) -> None:
    plain.xadd("orders", {"body": "1"})
    plain.expire("orders", 1000)
    assert "has a time to live" in warnings_of(at(valkey))


# TLS ------------------------------------------------------------------------------------------------------------------


@contextmanager
def behind_tls(server: ValkeyServer, context: ssl.SSLContext) -> Iterator[str]:
    """The url of something that ends TLS and passes everything on, as operators put it before a Redis without TLS."""

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def serve() -> None:
        with suppress(OSError):
            while True:
                call, _ = listener.accept()
                try:
                    secure = context.wrap_socket(call, server_side=True)
                except OSError:
                    call.close()
                    continue
                plain = socket.create_connection(("127.0.0.1", server.port))
                ends.extend((secure, plain))
                for pair in ((secure, plain), (plain, secure)):
                    threads.append(threading.Thread(target=carry, args=pair))
                    threads[-1].start()

    ends: list[socket.socket] = []
    listener = socket.create_server(("127.0.0.1", 0))
    threads = [threading.Thread(target=serve)]
    threads[0].start()
    try:
        yield f"rediss://127.0.0.1:{listener.getsockname()[1]}/0"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for thread in threads:
            thread.join()
        for end in ends:
            end.close()


def test_tls_shows_and_checks_certificates(valkey: ValkeyServer, plain: Any, tmp_path: Path) -> None:
    ours, others = Authority(tmp_path, "ours"), Authority(tmp_path, "others")
    server, client = ours.issue("server", address="127.0.0.1"), ours.issue("client")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ours.path))
    context.load_cert_chain(server.certificate, server.key)
    context.verify_mode = ssl.CERT_REQUIRED
    # With TLS 1.3 a client hears only later that its certificate was refused.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    plain.xadd("orders", {"body": "1"})
    own = {"certificate-file": str(client.certificate), "key-file": str(client.key)}
    with behind_tls(valkey, context) as url:

        def settings(**options: str) -> LogSettings:
            named = {key.replace("_", "-"): value for key, value in options.items()}
            return LogSettings(system="s", provider="redis", url=url, streams=("orders",), state="s", options=named)

        async def work() -> list[bytes]:
            async with opened(settings(ca_file=str(ours.path), **own)) as log:
                return bodies((await read_all(log))[0])

        assert run(work) == [b"1"]
        assert "ca-file" in problem_of(settings(ca_file=str(others.path), **own))
        assert "certificate-file" in problem_of(settings(ca_file=str(ours.path)))
        assert "ca-file" in problem_of(settings(**own))
        assert "PEM" in problem_of(settings(ca_file=str(tmp_path / "nowhere.pem")))


def test_a_server_without_tls_is_a_problem_for_rediss(valkey: ValkeyServer, plain: Any) -> None:
    url = valkey.url.replace("redis:", "rediss:")
    settings = LogSettings(system="s", provider="redis", url=url, streams=("orders",), state="s")
    with pytest.raises((LogProblem, Unavailable)):
        warnings_of(settings)


# Servers in trouble ---------------------------------------------------------------------------------------------------


def test_a_server_without_memory_is_unavailable_until_it_has_some(valkey: ValkeyServer, plain: Any) -> None:
    async def work() -> None:
        async with opened(at(valkey)) as log:
            await log.claim("me", 60)
            plain.config_set("maxmemory", 1)
            try:
                with pytest.raises(Unavailable, match="no memory left"):
                    await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")
            finally:
                plain.config_set("maxmemory", 0)
            assert (await log.state()).record == b""
            assert plain.xlen("orders") == 0
            await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")

    run(work)
    assert plain.xlen("orders") == 1


def test_a_server_that_cannot_write_to_its_disk_is_unavailable_until_it_can(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    with (
        ValkeyServer(tmp_path, {**FAST, "dir": str(data), "save": "3600 1"}) as server,
        redis.Redis(port=server.port) as plain,
    ):

        async def work() -> None:
            async with opened(at(server)) as log:
                await log.claim("me", 60)
                shutil.rmtree(data)
                plain.bgsave()
                await until(lambda: plain.info("persistence")["rdb_last_bgsave_status"] != "ok")
                with pytest.raises(Unavailable, match="cannot write to its disk"):
                    await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")
                plain.config_set("stop-writes-on-bgsave-error", "no")
                await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")

        run(work)
        server.kill()  # It would not end before it can save.


def test_a_replica_is_unavailable_until_it_is_the_primary(tmp_path: Path) -> None:
    first, second = ValkeyServer(tmp_path / "a"), ValkeyServer(tmp_path / "b")
    with first, second, redis.Redis(port=first.port) as primary, redis.Redis(port=second.port) as replica:
        primary.xadd("orders", {"body": "1"})
        replica.replicaof("127.0.0.1", first.port)

        async def work() -> None:
            await until(lambda: replica.info("replication").get("master_link_status") == "up")
            async with opened(at(second)) as log:
                with pytest.raises(Unavailable, match="is a replica"):
                    await log.claim("me", 60)
                assert bodies((await read_all(log))[0]) == [b"1"]
                first.kill()
                replica.replicaof("NO", "ONE")
                assert await log.claim("me", 60)
                await log.append([Entry(Content(b"2"), "far/p", 1, "far")], b"1", b"")
                assert bodies((await read_all(log))[0]) == [b"1", b"2"]

        assert "this server is a replica" in warnings_of(at(second))
        run(work)


def test_an_append_that_fails_in_the_middle_is_taken_back(valkey: ValkeyServer, plain: Any) -> None:
    plain.xadd("orders", {"body": "the last id but one"}, id=f"{2**64 - 1}-{2**64 - 2}")

    async def work() -> None:
        async with opened(at(valkey)) as log:
            await log.claim("me", 60)
            two = [Entry(Content(b"%d" % seq), "far/p", seq, "far") for seq in (1, 2)]
            with pytest.raises(LogProblem, match="exhausted"):
                await log.append(two, b"2", b"")
            assert (await log.state()).record == b""

    run(work)
    assert [fields[b"body"] for _, fields in plain.xrange("orders")] == [b"the last id but one"]


def test_a_server_that_forgets_its_scripts_is_told_again(valkey: ValkeyServer, plain: Any) -> None:
    async def work() -> None:
        async with opened(at(valkey)) as log:
            await log.claim("me", 60)
            for number in range(3):
                plain.script_flush()
                await log.append(
                    [Entry(Content(b"1"), "far/p", number + 1, "far")],
                    b"%d" % (number + 1),
                    b"%d" % number if number else b"",
                )
                plain.script_flush()
                assert len((await read_all(log))[0]) == number + 1

    run(work)


def test_a_connection_that_is_cut_in_between_costs_one_call(valkey: ValkeyServer, plain: Any) -> None:
    async def work() -> None:
        async with opened(at(valkey)) as log:
            await log.claim("me", 60)
            _, place = await read_all(log)
            plain.xadd("orders", {"body": "new"})
            plain.client_kill_filter(_type="normal", skipme=True)
            outcomes = await asyncio.gather(log.append([], b"1", b""), log.read(place, 9, MUCH), return_exceptions=True)
            # Whether the cut is seen before the call or by it is a matter of luck.
            assert all(isinstance(each, Unavailable) for each in outcomes if isinstance(each, Exception))
            assert (await log.state()).record == (b"" if isinstance(outcomes[0], Exception) else b"1")
            assert bodies((await log.read(place, 9, MUCH)).entries) == [b"new"]

    run(work)


def test_a_call_that_is_cancelled_leaves_no_answer_for_the_next(valkey: ValkeyServer, plain: Any) -> None:
    async def work() -> None:
        async with opened(at(valkey)) as log:
            await log.claim("me", 60)
            _, place = await log.read(BEGINNING, 10, MUCH)
            for number in range(20):
                reading = asyncio.create_task(log.read(place, 10, MUCH))
                noting = asyncio.create_task(log.note(b"%d" % number))
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                reading.cancel()
                noting.cancel()
                await asyncio.gather(reading, noting, return_exceptions=True)
                assert (await log.state()).token == 1
            plain.xadd("orders", {"body": "1"})
            assert bodies((await log.read(place, 10, MUCH)).entries) == [b"1"]

    run(work)


def test_durable_means_flushed_also_where_the_server_says_so_too_early(tmp_path: Path) -> None:
    """With everysec there is at most one flush a second, so three waits in a row take at least about one."""
    with ValkeyServer(tmp_path, {"appendonly": "yes", "appendfsync": "everysec"}) as server:

        async def work() -> None:
            async with opened(at(server)) as log:
                begun = time.monotonic()
                await log.claim("me", 60)
                await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")
                await log.durable()
                assert time.monotonic() - begun > 0.8

        run(work)


def test_a_standby_takes_over_without_waiting_for_a_flush_and_no_token_is_given_twice(tmp_path: Path) -> None:
    """Its token is on disk before it needs it; what the server does at the take-over alone need not be."""
    with (
        ValkeyServer(tmp_path, {"appendonly": "yes", "appendfsync": "everysec"}) as server,
        redis.Redis(port=server.port, decode_responses=True) as client,
    ):

        def flushes() -> int:
            return int(client.info("commandstats").get("cmdstat_waitaof", {"calls": 0})["calls"])

        async def work() -> None:
            async with opened(at(server)) as first, opened(at(server)) as standby:
                assert (await first.claim("first", 60)).token == 1
                assert await standby.claim("standby", 60) is None
                state = next(key for key in client.scan_iter() if "isthmus" in key)
                await until(lambda: client.hget(state, "tokens") == "2")
                await asyncio.gather(*(each for each in asyncio.all_tasks() if each is not asyncio.current_task()))
                before = flushes()
                await first.release()
                assert (await standby.claim("standby", 60)).token == 2
                assert flushes() == before
                client.hset(state, "token", 1)  # as a crash of its machine would leave it
                await standby.release()
                assert (await first.claim("first", 60)).token == 3

        run(work)


# Streams that are not what they were ----------------------------------------------------------------------------------


async def lose(valkey: ValkeyServer, plain: Any, count: int, read: int, act: Callable[[], object]) -> list[bytes]:
    """Write so many entries with ids 1-1, 1-2, …, read some, let something happen, and read on."""
    for number in range(1, count + 1):
        plain.xadd("orders", {"body": str(number)}, id=f"1-{number}")
    async with opened(at(valkey)) as log:
        place = BEGINNING
        while read:
            some, place = await log.read(place, read, MUCH)
            read -= len(some)
        act()
        # A loss shows before anything is given out from behind it.
        some, place = await log.read(place, 2, MUCH)
        try:
            return bodies([*some, *(await read_all(log, place))[0]])
        except LogProblem as late:
            raise AssertionError(f"{bodies(some)} was given out before it was said: {late}") from late


def test_a_deleted_entry_that_was_not_read_is_a_loss(valkey: ValkeyServer, plain: Any) -> None:
    with pytest.raises(Trimmed, match="1-7 was deleted"):
        run(lambda: lose(valkey, plain, 9, 4, lambda: plain.xdel("orders", "1-7")))


def test_deleted_entries_that_were_read_are_none(valkey: ValkeyServer, plain: Any) -> None:
    found = run(lambda: lose(valkey, plain, 9, 4, lambda: plain.xdel("orders", "1-1", "1-3", "1-4")))
    assert found == [b"5", b"6", b"7", b"8", b"9"]


def test_a_queue_whose_consumers_delete_what_they_have_is_read_as_long_as_we_are_first(
    valkey: ValkeyServer, plain: Any
) -> None:
    def consume() -> None:
        for number in range(1, 10):
            plain.xdel("orders", f"1-{number}")
        plain.xadd("orders", {"body": "10"}, id="1-10")

    assert run(lambda: lose(valkey, plain, 9, 9, consume)) == [b"10"]


def test_everything_trimmed_before_it_was_read_is_a_loss_even_if_nothing_is_left(
    valkey: ValkeyServer, plain: Any
) -> None:
    with pytest.raises(Trimmed, match="5 entries were trimmed"):
        run(lambda: lose(valkey, plain, 9, 4, lambda: plain.xtrim("orders", maxlen=0, approximate=False)))


def test_a_trim_right_behind_what_was_read_is_none(valkey: ValkeyServer, plain: Any) -> None:
    found = run(lambda: lose(valkey, plain, 9, 4, lambda: plain.xtrim("orders", minid="1-5", approximate=False)))
    assert found == [b"5", b"6", b"7", b"8", b"9"]


def test_a_trim_by_one_entry_more_is_a_loss_of_one(valkey: ValkeyServer, plain: Any) -> None:
    with pytest.raises(Trimmed, match="an entry was trimmed"):
        run(lambda: lose(valkey, plain, 9, 4, lambda: plain.xtrim("orders", minid="1-6", approximate=False)))


@pytest.mark.parametrize("age", [0, 1, 2])
def test_a_stream_made_anew_is_another_whatever_its_ids(valkey: ValkeyServer, plain: Any, age: int) -> None:
    def remake() -> None:
        plain.delete("orders")
        for number in range(1, 20):
            plain.xadd("orders", {"body": f"other {number}"}, id=f"{age}-{number}")

    with pytest.raises(Recreated):
        run(lambda: lose(valkey, plain, 9, 4, remake))


@pytest.mark.parametrize("more", [0, 1, 5, 30])
def test_a_tail_that_is_lost_in_a_crash_is_noticed_whatever_came_since(tmp_path: Path, more: int) -> None:
    """The server comes back with its last snapshot, which is older than what was read, and gives out newer ids."""
    with ValkeyServer(tmp_path, FAST) as server:

        async def work() -> None:
            with redis.Redis(port=server.port) as plain:
                for number in range(10):
                    plain.xadd("orders", {"body": str(number)})
                plain.save()
                for number in range(10, 15):
                    plain.xadd("orders", {"body": str(number)})
            async with opened(at(server)) as log:
                found, end = await read_all(log)
                assert len(found) == 15
                early = (await log.read(BEGINNING, 8, MUCH)).position
                server.kill()
                server.start()
                with redis.Redis(port=server.port) as plain:
                    for number in range(more):
                        plain.xadd("orders", {"body": f"new {number}"})
                with pytest.raises(Unavailable):
                    await log.read(end, 100, MUCH)
                with pytest.raises(Recreated):
                    await log.read(end, 100, MUCH)
                rest = bodies((await read_all(log, early))[0])
                assert rest == [b"8", b"9", *(b"new %d" % number for number in range(more))]

        run(work)


def test_a_place_in_a_stream_that_was_never_written_is_good(valkey: ValkeyServer, plain: Any) -> None:
    async def work() -> None:
        async with opened(at(valkey)) as log:
            found, place = await read_all(log)
            assert not found
            for start in (place, await log.find("now"), await log.find("start")):
                plain.delete("orders")
                plain.xadd("orders", {"body": "1"})
                assert bodies((await read_all(log, start))[0]) == [b"1"]

    run(work)


def test_an_older_hole_is_no_loss_to_whoever_begins_at_the_start(valkey: ValkeyServer, plain: Any) -> None:
    for number in range(1, 10):
        plain.xadd("orders", {"body": str(number)}, id=f"1-{number}")
    plain.xdel("orders", "1-4", "1-7")

    async def work() -> None:
        async with opened(at(valkey)) as log:
            start = await log.find("start")
            wanted = [b"1", b"2", b"3", b"5", b"6", b"8", b"9"]
            assert bodies((await read_all(log, start))[0]) == wanted
            assert bodies((await read_all(log))[0]) == wanted
            place = (await log.read(start, 2, MUCH)).position
            plain.xdel("orders", "1-5")
            with pytest.raises(Trimmed):
                await read_all(log, place)

    run(work)


def test_an_id_and_a_time_are_places(valkey: ValkeyServer, plain: Any) -> None:
    for number in range(1, 6):
        plain.xadd("orders", {"body": str(number)}, id=f"{1_700_000_000_000 + number * 1000}-0")

    async def work() -> None:
        async with opened(at(valkey)) as log:

            async def found(start: str) -> list[bytes]:
                return bodies((await read_all(log, await log.find(start)))[0])

            assert await found("1700000003000-0") == [b"4", b"5"]
            assert await found("1700000003500-7") == [b"4", b"5"]
            assert await found("1700000005000-0") == []
            assert await found("1700000000000-0") == [b"1", b"2", b"3", b"4", b"5"]
            assert await found("2023-11-14T22:13:23Z") == [b"3", b"4", b"5"]
            assert await found("2023-11-14T23:13:23+01:00") == [b"3", b"4", b"5"]
            assert await found("2023-11-14T22:13:23") == [b"3", b"4", b"5"]
            assert await found("2040-01-01") == []
            plain.xtrim("orders", maxlen=2, approximate=False)
            with pytest.raises(Trimmed, match="may have been trimmed"):
                await log.find("1700000002000-0")

    run(work)


@pytest.mark.parametrize("position", ["nonsense", "[]", '{"orders":["x",0,"","0-0"]}', '{"orders":[1]}', "\0" * 5000])
def test_a_position_that_we_did_not_write_is_a_problem(valkey: ValkeyServer, plain: Any, position: str) -> None:
    async def work() -> None:
        async with opened(at(valkey)) as log:
            with pytest.raises(LogProblem, match="is no position"):
                await log.read(position, 10, MUCH)

    run(work)


# Entries --------------------------------------------------------------------------------------------------------------


def test_large_entries_behind_small_ones_come_in_slices_that_fit(valkey: ValkeyServer, plain: Any) -> None:
    with plain.pipeline(transaction=False) as several:
        for _ in range(3000):
            several.xadd("orders", {"body": "small"})
        for _ in range(20):
            several.xadd("orders", {"body": b"." * (2 << 20)})
        several.execute()

    async def work() -> None:
        async with opened(at(valkey)) as log:
            sizes: list[int] = []
            after = BEGINNING
            while len(sizes) < 3020:
                some, after = await log.read(after, 4096, MUCH)
                assert len(some) == 1 or sum(len(body) for body in bodies(some)) <= MUCH
                sizes += map(len, bodies(some))
            assert sizes == [5] * 3000 + [2 << 20] * 20

    run(work)
    plain.flushall()


def test_an_entry_that_no_message_can_be_is_a_problem_and_no_end_of_memory(
    valkey: ValkeyServer, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isthmus.adapters.redis.wire.MAX_REPLY", 1 << 20)
    for size in (1, 1, 2 << 20):
        plain.xadd("orders", {"body": b"." * size})

    async def work() -> None:
        async with opened(at(valkey)) as log:
            found, place = await log.read(BEGINNING, 2, MUCH)
            assert bodies(found) == [b".", b"."]
            with pytest.raises(LogProblem, match="more bytes than are read at once"):
                await log.read(place, 100, MUCH)

    run(work)


def test_entries_with_more_than_the_server_takes_are_refused_by_their_index(valkey: ValkeyServer, plain: Any) -> None:
    plain.config_set("proto-max-bulk-len", 1 << 20)

    async def work() -> None:
        async with opened(at(valkey)) as log:
            await log.claim("me", 60)
            good = Entry(Content(b"1"), "far/p", 1, "far")
            wide = Entry(Content(b"2", [(b"a", b"1")] * 4000), "far/p", 2, "far")
            large = Entry(Content(b"." * ((1 << 20) + 1)), "far/p", 2, "far")
            for bad, words in ((wide, "fields"), (large, "proto-max-bulk-len")):
                with pytest.raises(Refused, match=words) as refused:
                    await log.append([good, bad], b"2", b"")
                assert refused.value.index == 1
            await log.append([good], b"1", b"")
            await log.park(wide, "too wide", b"2", b"1")
            assert [each.entry for each in await log.parked(10)] == [wide]

    try:
        run(work)
    finally:
        plain.config_set("proto-max-bulk-len", 512 << 20)


def test_what_others_put_where_we_put_aside_is_shown_all_the_same(valkey: ValkeyServer, plain: Any) -> None:
    plain.xadd("{orders}:isthmus:shop:parked", {"what": "is this"})

    async def work() -> None:
        async with opened(at(valkey)) as log:
            (found,) = await log.parked(10)
            assert found.entry.content.headers == [(b"what", b"is this")]
            with pytest.raises(LogProblem, match="is no id"):
                await log.unpark("everything")
            await log.unpark(found.id)
            assert not await log.parked(10)

    run(work)


def test_the_body_is_the_field_that_the_file_names(valkey: ValkeyServer, plain: Any) -> None:
    plain.xadd("orders", {"type": "sold", "data": "hello", "body": "no"})
    plain.xadd("orders", {"type": "none"})

    async def work() -> None:
        async with opened(at(valkey, body_field="data")) as log:
            (first, second), _ = await read_all(log)
            assert first.content.body == b"hello"
            assert first.content.place == 1
            assert first.content.headers == [(b"type", b"sold"), (b"body", b"no")]
            assert (second.content.body, second.content.place) == (b"", -1)
            await log.claim("me", 60)
            await log.append([first._replace(origin="far/p", seq=1), second._replace(origin="far/p", seq=2)], b"2", b"")

    run(work)
    (_, third), (_, fourth) = plain.xrange("orders")[2:]
    assert list(third.items())[:3] == [(b"type", b"sold"), (b"data", b"hello"), (b"body", b"no")]
    assert list(fourth.items())[:1] == [(b"type", b"none")]
    assert b"data" not in fourth


def test_several_streams_are_parts_each_in_its_order(valkey: ValkeyServer, plain: Any) -> None:
    for number in range(300):
        plain.xadd(f"s{number % 3}", {"body": str(number)})

    async def work() -> None:
        async with opened(at(valkey, "s0", "s1", "s2")) as log:
            found: list[Entry] = []
            after = BEGINNING
            while len(found) < 300:
                some, after = await log.read(after, 7, MUCH)
                found += some
            for part in range(3):
                mine = [int(entry.content.body) for entry in found if entry.part == part]
                assert mine == list(range(part, 300, 3))
                assert {entry.content.subject for entry in found if entry.part == part} == {f"s{part}"}
            await log.claim("me", 60)
            there = [
                Entry(Content(b"by part"), "far/p", 1, "far", part=1),
                Entry(Content(b"by subject", subject="s2"), "far/p", 2, "far"),
                Entry(Content(b"elsewhere", subject="other"), "far/p", 3, "far"),
            ]
            await log.append(there, b"3", b"")
            some, after = await read_all(log, after)
            assert {(entry.part, entry.content.body) for entry in some} == {
                (1, b"by part"), (2, b"by subject"), (0, b"elsewhere")
            }  # fmt: skip
            plain.xadd("s1", {"body": "one"})
            plain.xtrim("s1", maxlen=0, approximate=False)
            with pytest.raises(Trimmed, match="stream s1"):
                await read_all(log, after)

    run(work)


def test_a_stream_with_much_in_it_does_not_keep_the_others_waiting(valkey: ValkeyServer, plain: Any) -> None:
    for _ in range(50):
        plain.xadd("s0", {"body": b"." * 2000})
    for stream in ("s1", "s2"):
        plain.xadd(stream, {"body": "small"})

    async def work() -> None:
        async with opened(at(valkey, "s0", "s1", "s2")) as log:
            seen: set[int] = set()
            after = BEGINNING
            for _ in range(3):
                some, after = await log.read(after, 1000, 1500)
                seen |= {entry.part for entry in some}
            assert seen == {0, 1, 2}

    run(work)


def test_keys_of_a_cluster_lie_where_the_stream_lies(tmp_path: Path) -> None:
    server = ValkeyServer(tmp_path, {**FAST, "cluster-enabled": "yes"}, ports=2)
    server.settings["cluster-port"] = str(server.port + 1)
    with server, redis.Redis(port=server.port) as plain:
        plain.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")

        async def work() -> None:
            await until(lambda: b"cluster_state:ok" in plain.execute_command("CLUSTER", "INFO"))
            for stream in ("orders", "{shop}:orders", "odd{name"):
                async with opened(at(server, stream)) as log:
                    await log.claim("me", 60)
                    await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")
                    await log.park(Entry(Content(b"1"), "far/p", 2, "far"), "no", b"2", b"1")
                    assert bodies((await read_all(log))[0]) == [b"1"]
                    assert len(await log.parked(5)) == 1

        run(work)
        assert "hash tag" in problem_of(at(server, "one", "other"))


def test_a_stream_that_another_node_of_the_cluster_has_is_followed_there(tmp_path: Path) -> None:
    nodes = [ValkeyServer(tmp_path / name, {**FAST, "cluster-enabled": "yes"}, ports=2) for name in "ab"]
    for node in nodes:
        node.settings["cluster-port"] = str(node.port + 1)
    first, second = nodes
    with first, second, redis.Redis(port=first.port) as one, redis.Redis(port=second.port) as other:
        one.execute_command("CLUSTER", "ADDSLOTSRANGE", "0", "8191")
        other.execute_command("CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
        one.execute_command("CLUSTER", "MEET", "127.0.0.1", str(second.port), str(second.port + 1))

        async def work() -> None:
            for node in (one, other):
                await until(lambda node=node: b"cluster_state:ok" in node.execute_command("CLUSTER", "INFO"))
            for stream in ("a", "b", "c", "d"):
                log = RedisLog(at(first, stream))
                try:
                    await patiently(log.open)
                    await patiently(lambda log=log: log.claim("me", 60))
                    await log.append([Entry(Content(b"1"), "far/p", 1, "far")], b"1", b"")
                    assert bodies((await read_all(log))[0]) == [b"1"]
                finally:
                    await log.close()

        run(work)
        assert one.dbsize() > 0
        assert other.dbsize() > 0


words = st.binary(max_size=5).filter(lambda name: not name.startswith(b"isthmus-"))


@given(
    st.lists(st.tuples(words | st.just(b"body"), words), min_size=1, max_size=6),
    st.sampled_from([("", 0, ""), ("a/p", 1, "a"), ("a/p", 7, "a,b")]),
)
def test_fields_of_another_stream_arrive_as_they_were(
    fields: list[tuple[bytes, bytes]], ours: tuple[str, int, str]
) -> None:
    flat = [word for field in fields for word in field]
    read = entry_of(flat, b"body", 5, "", 0)
    written = fields_of(Entry(read.content, *ours), b"body", subject=True)
    assert written[: len(flat)] == flat
    assert entry_of(written, b"body", 5, "", 0) == Entry(read.content, *ours)


@given(
    st.lists(st.tuples(words | st.just(b"body"), words), max_size=4),
    words,
    st.integers(min_value=-1, max_value=5),
    st.none() | words,
)
def test_what_comes_from_other_kinds_keeps_body_and_headers(
    headers: list[tuple[bytes, bytes]], body: bytes, place: int, key: bytes | None
) -> None:
    content = Content(body, headers, "orders.eu", key, 9, place)
    fields = fields_of(Entry(content, "a/p", 1, "a"), b"body", subject=True)
    there = list(zip(fields[::2], fields[1::2], strict=True))
    assert (b"subject", b"orders.eu") in there
    assert key is None or (b"key", key) in there
    if place >= 0:
        read = entry_of(fields, b"body", 9, "", 0)
        assert read.content.body == body
        assert read.content.headers[: len(headers)] == headers


def test_without_a_claim_nothing_is_put_aside(valkey: ValkeyServer, plain: Any) -> None:
    async def work() -> None:
        async with opened(at(valkey)) as log:
            with pytest.raises(Superseded):
                await log.park(Entry(Content(b"1"), "far/p", 1, "far"), "no", b"1", b"")
            assert not await log.parked(5)

    run(work)
