"""The WAN emulator beside plain loopback: does it carry enough, and are its delays and rates true?

The emulator runs in an OS process of its own, as its users run it. Sender and receiver are threads of this one that
do nothing but move large blocks, so that the emulator has the hardest time; without it, they measure the yardstick.
On two cores all three compete for them, which makes the ratio worse than the emulator is.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from msgspec import Struct

from isthmus.core.ids import MILLISECOND, Nanos
from isthmus.core.units import format_duration, format_rate
from isthmus.runtime.transport.address import LOOPBACK, Address, address_of, listen

BLOCK = 1 << 20
SECONDS = 2.0
DELAYS: tuple[Nanos, ...] = (0, 25 * MILLISECOND)
RATES = (1_000_000, 20_000_000, 100_000_000, 1_000_000_000)
PINGS = 150


class Throughput(Struct, frozen=True):
    """One connection over a line without a rate, and one without any line."""

    delay: Nanos
    bits_per_second: float
    direct_bits_per_second: float

    @property
    def ratio(self) -> float:
        """What is left of plain loopback."""
        return self.bits_per_second / self.direct_bits_per_second


class Delays(Struct, frozen=True):
    """How long single bytes took over an idle line, in milliseconds; `direct` is the median without any line."""

    delay: Nanos
    least: float
    median: float
    ninety_ninth: float
    most: float
    direct: float


class Rate(Struct, frozen=True):
    """Bits per second that arrived over a line that was kept full, and what share of a core the emulator took."""

    rate: int
    bits_per_second: float
    core: float

    @property
    def error(self) -> float:
        return self.bits_per_second / self.rate - 1


def measure(seconds: float = SECONDS) -> Iterator[Throughput | Delays | Rate]:
    """All figures, one after the other; about half a minute."""
    for delay in DELAYS:
        yield throughput(delay, seconds)
    yield delays(25 * MILLISECOND)
    for rate in RATES:
        yield accuracy(rate, seconds)


def throughput(delay: Nanos, seconds: float = SECONDS) -> Throughput:
    """The better of two, each way: the machine may have been busy with something else during one of them."""
    with _target() as target, _Emulator(address_of(target), delay) as line:
        pairs = [
            (_transfer(line.address, target, seconds), _transfer(address_of(target), target, seconds)) for _ in range(2)
        ]
    carried, direct = (max(rates) for rates in zip(*pairs, strict=True))
    return Throughput(delay, carried, direct)


def delays(delay: Nanos, pings: int = PINGS) -> Delays:
    with _target() as target, _Emulator(address_of(target), delay) as line:
        direct = sorted(_ping(address_of(target), target, pings))
        taken = sorted(_ping(line.address, target, pings))
    return Delays(delay, taken[0], taken[pings // 2], taken[pings * 99 // 100], taken[-1], direct[pings // 2])


def accuracy(rate: int, seconds: float = SECONDS, delay: Nanos = 25 * MILLISECOND) -> Rate:
    with _target() as target, _Emulator(address_of(target), delay, rate) as line:
        before, started = line.cpu_seconds(), time.monotonic()
        measured = _transfer(line.address, target, seconds, block=max(1000, min(BLOCK, rate // 800)))
        core = (line.cpu_seconds() - before) / (time.monotonic() - started)
    return Rate(rate, measured, core)


class _Emulator:
    """`isthmus wan` in an OS process of its own. It ends with its standard input."""

    def __init__(self, target: Address, delay: Nanos, rate: int | None = None) -> None:
        command = [sys.executable, "-m", "isthmus", "wan", "--control", "--delay", format_duration(delay)]
        command += ["--line", f"{LOOPBACK}:0={target}"]
        if rate is not None:
            command += ["--rate", format_rate(rate)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        self.address = Address(LOOPBACK, int(ready.split()[2].rpartition(":")[2]))

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> _Emulator:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


@contextmanager
def _target() -> Iterator[socket.socket]:
    with listen(Address(LOOPBACK, 0)) as target:
        target.setblocking(True)
        yield target


def _transfer(address: Address, target: socket.socket, seconds: float, block: int = BLOCK) -> float:
    """Bits per second that arrive, counted from the first byte on. Then the receiver hangs up, and all ends."""

    def send() -> None:
        with socket.create_connection(address) as connection:
            data = bytes(block)
            try:
                while True:
                    connection.sendall(data)
            except ConnectionError:
                pass

    sending = threading.Thread(target=send)
    sending.start()
    connection, _ = target.accept()
    with connection:
        buffer, size = bytearray(BLOCK), 0
        connection.recv_into(buffer)
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < seconds:
            size += connection.recv_into(buffer)
    sending.join()
    return size * 8 / elapsed


def _ping(address: Address, target: socket.socket, pings: int) -> list[float]:
    """Milliseconds that single bytes take one way, one at a time, in no fixed step with any clock."""
    random = Random(1)
    taken = []
    with socket.create_connection(address) as sender:
        receiver, _ = target.accept()
        with receiver:
            for _ in range(pings):
                time.sleep(random.uniform(0, 2) / 1000)
                sent_at = time.monotonic_ns()
                sender.sendall(b"x")
                receiver.recv(1)
                taken.append((time.monotonic_ns() - sent_at) / MILLISECOND)
    return taken
