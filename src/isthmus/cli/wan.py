"""`isthmus wan`: the user-space WAN emulator, for anything that speaks TCP.

With `--control`, a script on standard input cuts and mends lines while they run:

    cut 0            cut 0 reset     mend 0        mend all
    rate 0 10Mbit    rate 0 none     total 0 50Mbit
    delay all 40ms   jitter 0 2ms    show 0        end

Each command is answered by one line, after it has taken effect. The end of the input ends the emulator too (unless
`--for` says how long to go on), so it does not outlive the script that controls it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Annotated, NamedTuple

import typer
from msgspec import Struct

from isthmus.cli.console import HOLDS, Output, OutputOption, duration_of, err, fail, out, print_json, rate_of
from isthmus.core.ids import SECOND, Nanos
from isthmus.core.units import format_duration, format_rate, parse_duration, parse_rate
from isthmus.runtime.loop import run as run_loop
from isthmus.runtime.problems import AddressInUse, RuntimeProblem
from isthmus.runtime.transport.address import Address
from isthmus.runtime.wan.emulator import CutKind, Wan
from isthmus.runtime.wan.relay import ConnectionStatistics

_COMMANDS = "cut N [silent|reset], mend N, delay N 25ms, jitter N 2ms, rate N 20Mbit, total N 50Mbit, show N, end"
_USAGE = f"no such command; there are {_COMMANDS}; N is the number of a line, or all"
_HIGHEST_PORT = 65535


class Settings(NamedTuple):
    """What all lines of one command have in common."""

    delay: Nanos
    jitter: Nanos
    rate: int | None
    total: int | None
    queue: int | None
    seed: int


class LineReport(Struct, frozen=True):
    """What one line has carried; `there` is from the callers to the target. Bytes."""

    line: int
    listen: str
    to: str
    cut: CutKind | None
    connections: int
    bytes_there: int
    bytes_back: int
    latest: list[ConnectionStatistics]


def wan(
    listen: Annotated[str | None, typer.Option(help="Where to listen, such as 127.0.0.1:7000; port 0: any.")] = None,
    to: Annotated[str | None, typer.Option(help="Where to carry the connections, such as 127.0.0.1:7400.")] = None,
    line: Annotated[list[str] | None, typer.Option(help="LISTEN=TARGET; again for more lines.")] = None,
    delay: Annotated[str, typer.Option(help="One way, such as 25ms; a round trip takes twice as long.")] = "0ms",
    jitter: Annotated[str, typer.Option(help="Each segment takes up to this much longer.")] = "0ms",
    rate: Annotated[str | None, typer.Option(help="Of each connection, each way, such as 20Mbit.")] = None,
    total: Annotated[str | None, typer.Option(help="Of all connections of a line together, each way.")] = None,
    queue: Annotated[int | None, typer.Option(help="Bytes that may wait on each connection, each way.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Of the jitter.")] = 0,
    duration: Annotated[str | None, typer.Option("--for", help="End after this long, such as 60s.")] = None,
    control: Annotated[bool, typer.Option(help=f"Take commands from standard input: {_COMMANDS}.")] = False,
    output: OutputOption = Output.HUMAN,
) -> int:
    """Carry TCP connections over an emulated line with delay, jitter and a rate, which can be cut and mended."""
    lines = _lines(listen, to, line or [])
    settings = Settings(
        duration_of("--delay", delay),
        duration_of("--jitter", jitter),
        _rate("--rate", rate),
        _rate("--total", total),
        queue,
        seed,
    )
    seconds = duration_of("--for", duration) / SECOND if duration else None
    logging.basicConfig(level=logging.INFO, format="isthmus: %(message)s", stream=sys.stderr)
    started = time.monotonic()
    reports = run_loop(Emulator(lines, settings, seconds, control, output).run())
    if output is Output.JSON:
        print_json({"seconds": round(time.monotonic() - started, 3), "lines": reports})
    else:
        _print(reports)
    return HOLDS


class Emulator:
    """All lines of one command, from the first that listens to the last report."""

    def __init__(
        self,
        lines: Sequence[tuple[Address, Address]],
        settings: Settings,
        seconds: float | None,
        control: bool,
        output: Output,
    ) -> None:
        self._lines = lines
        self._settings = settings
        self._seconds = seconds
        self._control = control
        self._output = output
        self._wans: list[Wan] = []
        self._stop = asyncio.Event()

    async def run(self) -> list[LineReport]:
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, self._stop.set)
        obeying = None
        try:
            for listen, target in self._lines:
                self._wans.append(await _start(listen, target, self._settings))
            for index in range(len(self._wans)):
                self._say(self._describe(index))
            if self._control:
                obeying = asyncio.ensure_future(self._obey())
            try:
                await asyncio.wait_for(self._stop.wait(), self._seconds)
            except TimeoutError:
                pass
            return [self._report(index) for index in range(len(self._wans))]
        finally:
            if obeying is not None:
                obeying.cancel()
            for line in self._wans:
                await line.close()

    def _say(self, text: str) -> None:
        """To people and scripts that watch: at once, and out of the way of a result that is JSON."""
        stream = err if self._output is Output.JSON else out
        stream.print(text, markup=False)
        stream.console.file.flush()

    def _describe(self, index: int) -> str:
        wan = self._wans[index]
        (delay, jitter, rate, _), trunk = wan.ways[0]
        text = f"line {index}: {wan.address} -> {wan.target}, delay {format_duration(delay)}"
        if jitter:
            text += f", jitter {format_duration(jitter)}"
        text += f", rate {format_rate(rate) if rate else 'unlimited'}"
        if trunk.rate:
            text += f", total {format_rate(trunk.rate)}"
        return text + (f", cut ({wan.is_cut})" if wan.is_cut else "")

    def _carried(self, index: int) -> str:
        there, back = self._wans[index].arrived()
        accepted = self._wans[index].accepted
        return f"{self._describe(index)}; {accepted} connections, {there} bytes there, {back} bytes back"

    def _report(self, index: int) -> LineReport:
        wan = self._wans[index]
        there, back = wan.arrived()
        return LineReport(
            line=index,
            listen=str(wan.address),
            to=str(wan.target),
            cut=wan.is_cut,
            connections=wan.accepted,
            bytes_there=there,
            bytes_back=back,
            latest=wan.statistics(),
        )

    # Commands.

    async def _obey(self) -> None:
        async for command in _standard_input():
            try:
                self._execute(command.split())
            except (ValueError, RuntimeProblem) as error:
                err.print(f"isthmus: {command.strip()}: {error}", markup=False)
        if self._seconds is None:
            self._stop.set()

    def _execute(self, words: list[str]) -> None:
        if words == ["end"]:
            self._stop.set()
        elif len(words) >= 2:
            verb, which, *rest = words
            action = _action(verb, rest)
            for index in self._chosen(which):
                action(self._wans[index])
                self._say(self._carried(index) if verb == "show" else self._describe(index))
        elif words:
            raise ValueError(_USAGE)

    def _chosen(self, which: str) -> Iterable[int]:
        if which == "all":
            return range(len(self._wans))
        if not which.isdecimal() or int(which) >= len(self._wans):
            raise ValueError(f"no line {which}; lines are 0 to {len(self._wans) - 1}, or all")
        return (int(which),)


def _action(verb: str, rest: list[str]) -> Callable[[Wan], None]:
    """What a command does to each line that it names. `ValueError` says why it does nothing."""
    match verb, rest:
        case "cut", ([] | ["silent"]):
            return lambda wan: wan.cut(CutKind.SILENT)
        case "cut", ["reset"]:
            return lambda wan: wan.cut(CutKind.RESET)
        case "mend", []:
            return lambda wan: wan.mend()
        case "show", []:
            return lambda wan: None
        case (("delay" | "jitter"), [value]):
            nanos = parse_duration(value)
            return lambda wan: wan.set(delay=nanos) if verb == "delay" else wan.set(jitter=nanos)
        case (("rate" | "total"), [value]):
            bits = None if value == "none" else parse_rate(value)
            return lambda wan: wan.set(rate=bits) if verb == "rate" else wan.set(total=bits)
    raise ValueError(_USAGE)


async def _standard_input() -> AsyncIterator[str]:
    """Its lines, from a thread: a pipe, a terminal and a file all do. Nobody waits for the thread at the end."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        # Not through sys.stdin, whose lock would be held for ever at exit.
        rest, descriptor = b"", sys.stdin.fileno()
        try:
            while data := os.read(descriptor, 4096):
                *whole, rest = (rest + data).split(b"\n")
                for line in whole:
                    loop.call_soon_threadsafe(lines.put_nowait, line.decode(errors="replace"))
            loop.call_soon_threadsafe(lines.put_nowait, rest.decode(errors="replace"))
            loop.call_soon_threadsafe(lines.put_nowait, None)
        except RuntimeError:
            pass  # The event loop has ended first.

    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


async def _start(listen: Address, target: Address, settings: Settings) -> Wan:
    try:
        return await Wan.start(target, listen=listen, **settings._asdict())
    except AddressInUse:
        fail(
            f"{listen} is already in use. Stop the program that listens there "
            f"(`ss -ltnp 'sport = :{listen.port}'` names it) or listen on another port."
        )


# Reading options, printing results.


def _lines(listen: str | None, to: str | None, more: Sequence[str]) -> list[tuple[Address, Address]]:
    if (listen is None) != (to is None):
        fail("--listen and --to go together: where to listen, and where to carry the connections")
    lines = []
    if listen is not None and to is not None:
        lines.append((_address("--listen", listen), _address("--to", to)))
    for text in more:
        here, equals, there = text.partition("=")
        if not equals:
            fail(f"--line {text}: write LISTEN=TARGET, such as 127.0.0.1:7000=127.0.0.1:7400")
        lines.append((_address("--line", here), _address("--line", there)))
    if not lines:
        fail("nothing to carry; give --listen and --to, or --line LISTEN=TARGET")
    return lines


def _address(option: str, text: str) -> Address:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > _HIGHEST_PORT:
        fail(f"{option} {text}: write host:port, such as 127.0.0.1:7000")
    return Address(host, int(port))


def _rate(option: str, text: str | None) -> int | None:
    return None if text is None else rate_of(option, text, "`cut` does that")


def _print(reports: Sequence[LineReport]) -> None:
    for report in reports:
        held_there = max((each.there.peak_held for each in report.latest), default=0)
        held_back = max((each.back.peak_held for each in report.latest), default=0)
        out.print(
            f"line {report.line}: {report.listen} -> {report.to}, {report.connections:,} connections, "
            f"{report.bytes_there:,} bytes there (at most {held_there:,} held), "
            f"{report.bytes_back:,} bytes back (at most {held_back:,} held)",
            markup=False,
        )
