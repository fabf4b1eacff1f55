"""Measures one row of `isthmus bench targets`, as a script of its own: it is told what by one JSON object, and answers
with one.

It runs by its path, with the sources that it measures on PYTHONPATH, which may be those of an old commit; so it uses
what both have, and asks where they differ. A row with sockets has OS processes that are this script as well: parts of
the sites, or the two ends of a plain pump. Each obeys words on its standard input, and ends with it.

Senders pass lists of at most 64 payloads. Applications iterate over what they are delivered and look at each payload.
"""

from __future__ import annotations

import asyncio
import cProfile
import io
import json
import os
import pstats
import resource
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, count, cycle, islice, repeat
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from isthmus.core.codec import FrameReader, encode
from isthmus.core.ids import MILLISECOND, SECOND, Directory, ProcessName, slot_of
from isthmus.core.message import Batch
from isthmus.core.wire.group import Ack
from isthmus.lab.harness.os_process import LOOK_EVERY, Ports
from isthmus.lab.harness.sites import FAR, NEAR, Layout, Lines, LinkQuality
from isthmus.ordering.group.member import GroupMember
from isthmus.ordering.group.window import GroupSettings
from isthmus.ordering.orders.causal import CausalOrder
from isthmus.runtime.host import start_all
from isthmus.runtime.loop import run
from isthmus.runtime.site import Site, site_spec
from isthmus.runtime.systems.spec import SystemSpec
from isthmus.runtime.transport.address import LOOPBACK, Address, listen
from isthmus.simulator.checks.sometimes import Sometimes
from isthmus.simulator.faults.plan import NetworkFaults
from isthmus.simulator.network import Network
from isthmus.simulator.world import Host, World
from isthmus.topology.file import load
from isthmus.topology.read.simulation import Fixed
from isthmus.topology.wiring import all_links

Work: TypeAlias = dict[str, Any]
"""What goes to other OS processes as JSON: what is to be done, or what came of it."""
Counted: TypeAlias = Callable[[str, str], bool]
"""Whether what is delivered in this part, to this process, counts."""
Senders: TypeAlias = Callable[[], Iterable[Coroutine[Any, Any, None]]]
"""What begins to send."""

WARM_UP = 1.0
START_WITHIN = 60.0
"""Seconds until the first message has to have arrived."""
SHOWN = 25
"""Functions of a profile that are printed."""
WINDOWS = {"window_messages": 1 << 17, "window_bytes": 32 << 20}
"""Of the sites: more than they ever need on loopback, and 4 MiB per line of eight, as in `bench wan`."""
LINE_DELAY = 25 * MILLISECOND
HOP = MILLISECOND // 10
PUMPED = bytes(64 << 10)
DEFAULTS: Work = {"size": 100, "at_once": 64, "pause": None, "origins": 1}
"""Of a sender: bytes per payload, payloads per call, seconds between two calls, in whose names it sends."""


# What is in one OS process.


class Meter:
    """Counts what was delivered here, by process, and the processor time that this took; with a profile, if asked."""

    def __init__(self, profile: bool) -> None:
        self.looked_at: Counter[str] = Counter()
        self._profile = cProfile.Profile() if profile else None

    def take(self, name: str, batch: Any) -> None:
        """The application: it looks at every payload."""
        looked_at = 0
        segment = getattr(batch, "segment", None)
        if segment is None:
            for message in batch.messages:
                if message.payload:
                    looked_at += 1
        else:
            for payload in segment.payloads():
                if payload:
                    looked_at += 1
        self.looked_at[name] += looked_at

    def look(self) -> Work:
        times = os.times()
        return {"at": time.monotonic(), "cpu": times.user + times.system, "looked_at": dict(self.looked_at)}

    def begin(self) -> Work:
        if self._profile is not None:
            self._profile.enable()
        return self.look()

    def end(self) -> Work:
        if self._profile is None:
            return self.look()
        self._profile.disable()
        text = io.StringIO()
        pstats.Stats(self._profile, stream=text).strip_dirs().sort_stats("tottime").print_stats(SHOWN)
        return self.look() | {"profile": text.getvalue()}


def payloads_of(count: int, size: int) -> list[bytes]:
    """Payloads of which no two are one object, as an application's are not."""
    return [bytes([number]) * size for number in range(1, count + 1)]


async def send(driver: Any, payloads: list[bytes], pause: float | None) -> None:
    """Send the list again and again, as fast as back-pressure allows, or with a pause after each."""
    while True:
        await driver.send(payloads)
        if pause is not None:
            await asyncio.sleep(pause)


async def start_site(work: Work, meter: Meter) -> Senders:
    """Start members of a site. Returns what begins to send."""
    topology = load(Path(work["topology"]))
    system = topology.system(work["site"])
    assert system.address is not None
    addresses = [Address(*system.address.plus(place)) for place in range(len(system.members))]
    spec = site_spec(topology, system, addresses, "targets", **work["settings"])
    site, names = Site(topology, system.name, spec), spec.directory()
    ids = {name: names.id(system.name, name) for name in work["members"]}
    starting = {
        name: site.start(process, listen(spec.addresses[slot_of(process)]), on_batch=partial(meter.take, name))
        for name, process in ids.items()
    }
    drivers = await start_all(starting)
    payloads = payloads_of(work["at_once"], work["size"])
    if work["origins"] > 1 and work["senders"]:
        (sender,) = work["senders"]
        others = [names.id(system.name, f"p{number}") for number in range(1, work["origins"] + 1)]
        member: Any = drivers[sender].member
        member.broadcast = Shredder(member, others)
    return lambda: [send(drivers[name], payloads, work["pause"]) for name in work["senders"]]


MOST = 4096


class Shredder:
    """Broadcasts in the name of many processes in turn, as if each message had come in from another of them."""

    def __init__(self, member: Any, origins: Sequence[int]) -> None:
        self._member = member
        self._ids = zip(cycle(origins), chain.from_iterable(map(repeat, count(1), repeat(len(origins)))), strict=False)
        self._sent = 0
        has_segments = find_spec("isthmus.core.segment") is not None
        self._make = import_module("isthmus.core.segment").Segment if has_segments else None
        self._formats = "QQI" if import_module("isthmus.core.codec").VERSION < 4 else "HIH"

    def __call__(self, payloads: Sequence[bytes], now: int, out: Any) -> int:
        first = self._sent + 1
        if len(payloads) > MOST:  # a step may take in more than a segment holds
            self(payloads[:MOST], now, out)
            self(payloads[MOST:], now, out)
            return first
        self._sent += len(payloads)
        origins, numbers = zip(*islice(self._ids, len(payloads)), strict=True)
        if self._make is None:
            message = import_module("isthmus.core.message").Message
            self._member.relay(list(map(message, origins, numbers, payloads)), now, out)
        elif len(payloads) == 1:
            self._member.relay([self._make.of(origins[0], numbers[0], payloads)], now, out)
        else:
            columns = (origins, numbers, (1,) * len(payloads))
            table = [array(each, column).tobytes() for each, column in zip(self._formats, columns, strict=True)]
            self._member.relay([self._make(*table, len(payloads[0]), b"", b"".join(payloads))], now, out)
        return first


async def start_sink(work: Work, meter: Meter) -> Senders:
    """The far end of the pump: reads, and counts messages by their size."""

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count = 0
        while data := await reader.read(len(PUMPED)):
            count += len(data)
            meter.looked_at["p1"] += count // work["size"]
            count %= work["size"]

    for port in work["ports"]:
        await asyncio.start_server(read, sock=listen(Address(LOOPBACK, port)))
    return lambda: ()


async def start_source(work: Work, meter: Meter) -> Senders:
    """The near end of the pump: writes as much as each line takes."""

    async def write(port: int) -> None:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
        while True:
            writer.write(PUMPED)
            await writer.drain()
            await asyncio.sleep(0)

    return lambda: map(write, work["ports"])


class BareLine(asyncio.Protocol):
    """A connection on which a batch and an acknowledgement come again and again, and are decoded."""

    def __init__(self, name: str, take: Callable[[str, Any], None]) -> None:
        self._name = name
        self._take = take
        self._frames = FrameReader()

    def data_received(self, data: bytes) -> None:
        for pdu in self._frames.feed(data):
            if isinstance(pdu, Batch):
                self._take(self._name, pdu)


async def start_bare(work: Work, meter: Meter) -> Senders:
    """The frames of a group over TCP and nothing else: what any way to order messages pays for them and for sockets."""
    loop, names = asyncio.get_running_loop(), work["members"]
    segment = import_module("isthmus.core.segment").Segment
    for name, port in zip(names, work["ports"], strict=True):
        await loop.create_server(partial(BareLine, name, meter.take), sock=listen(Address(LOOPBACK, port)))

    async def speak(place: int) -> None:
        payloads = payloads_of(work["at_once"], work["size"])
        batch = Batch(1, place, 1, [0] * len(names), 0, segment.of(place, 1, payloads))
        frames = encode(batch) + encode(Ack(1, 1, 1))
        ports = [port for at, port in enumerate(work["ports"]) if at != place]
        lines = [(await loop.create_connection(asyncio.Protocol, LOOPBACK, port))[0] for port in ports]
        while True:
            if not any(line.get_write_buffer_size() for line in lines):
                meter.take(names[place], batch)
                for line in lines:
                    line.write(frames)
            await asyncio.sleep(0)

    return lambda: map(speak, range(len(names)))


async def part(work: Work) -> None:
    """Start what runs here, then answer words; those of the `Meter`, and `send`."""
    words = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), sys.stdin)
    meter = Meter(work["profile"])
    starts = {"site": start_site, "sink": start_sink, "source": start_source, "bare": start_bare}
    start = starts[work["part"]]
    begin_to_send = await start(work, meter)
    sending = []
    answers: dict[str, Callable[[], Work]] = {"look": meter.look, "begin": meter.begin, "end": meter.end}
    while word := (await words.readline()).decode().strip():
        if word == "send":
            sending = [asyncio.ensure_future(each) for each in begin_to_send()]
        for each in sending:
            if each.done():
                each.result()
        say(answers.get(word, meter.look)())


def say(answer: Work) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


# What measures them.


class Parts:
    """OS processes that are measured together, by name; none outlives the block."""

    def __init__(self, works: Mapping[str, Work]) -> None:
        self._works = works
        self._processes: dict[str, asyncio.subprocess.Process] = {}

    async def __aenter__(self) -> Parts:
        pipe = asyncio.subprocess.PIPE
        for name, work in self._works.items():
            command = (sys.executable, "-P", __file__, "part", json.dumps(work))
            self._processes[name] = await asyncio.create_subprocess_exec(
                *command, stdin=pipe, stdout=pipe, limit=1 << 24
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
            await process.wait()

    async def ask(self, word: str) -> Mapping[str, Work]:
        for process in self._processes.values():
            assert process.stdin is not None
            process.stdin.write(f"{word}\n".encode())
        answers = {}
        for name, process in self._processes.items():
            assert process.stdout is not None
            line = await process.stdout.readline()
            if not line:
                raise RuntimeError(f"{name} has ended")
            answers[name] = json.loads(line)
        return answers

    async def measure(self, seconds: float, counted: Counted) -> Work:
        """Have them send; when messages arrive, warm up, and measure."""
        try:
            async with asyncio.timeout(START_WITHIN):
                await self.ask("look")
                look = await self.ask("send")
                while not any(arrived(part, figures, counted) for part, figures in look.items()):
                    await asyncio.sleep(LOOK_EVERY)
                    look = await self.ask("look")
        except TimeoutError:
            raise RuntimeError(f"nothing was delivered within {START_WITHIN:g} s") from None
        await asyncio.sleep(min(WARM_UP, seconds))
        before = await self.ask("begin")
        await asyncio.sleep(seconds)
        return difference(before, await self.ask("end"), counted)


def arrived(part: str, look: Work, counted: Counted) -> int:
    """Messages that were looked at in one part, by the processes that count."""
    return sum(count for process, count in look["looked_at"].items() if counted(part, process))


def difference(before: Mapping[str, Work], after: Mapping[str, Work], counted: Counted) -> Work:
    """What happened per second between two looks at all parts."""
    passed = {part: after[part]["at"] - before[part]["at"] for part in after}
    counts = {part: arrived(part, after[part], counted) - arrived(part, before[part], counted) for part in after}
    return {
        "rate": sum(counts[part] / passed[part] for part in after),
        "cores": {part: (after[part]["cpu"] - before[part]["cpu"]) / passed[part] for part in after},
        "profiles": {part: figures["profile"] for part, figures in after.items() if "profile" in figures},
    }


async def measured(works: Mapping[str, Work], seconds: float, counted: Counted) -> Work:
    async with Parts(works) as parts:
        return await parts.measure(seconds, counted)


def joined(
    work: Work,
    file: Path,
    ports: Ports,
    seconds: float,
    *,
    processes: int = 1,
    gateways: tuple[int, int] = (1, 1),
    links: int = 1,
    origins: int = 1,
    apart: bool = False,
    rate: int | None = None,
) -> Work:
    """Messages per second from a process of one site to a process of another; with a `rate`, over emulated lines."""
    absent = [f"p{number}" for number in range(2, origins + 1)]
    layout = Layout(
        processes=(max(processes, origins), processes),
        gateways=gateways,
        links=links,
        line=None if rate is None else LinkQuality(LINE_DELAY, rate),
        near=f"standby = {absent}\n" if absent else "",
    )
    file.write_text(layout.file(ports))
    everybody = [f"{site}/{name}" for site in (NEAR, FAR) for names in layout.members(site) for name in names]
    works = {}
    for name, (site, members) in layout.shares(everybody if apart else ()).items():
        here = [member for member in members if site == FAR or member not in absent]
        senders = ["p1"] if site == NEAR and "p1" in here else []
        works[name] = work | {"site": site, "members": here, "senders": senders, "settings": WINDOWS}
        works[name]["origins"] = origins

    def counted(part: str, process: str) -> bool:
        return part.startswith(FAR) and process == "p1"

    if layout.line is None:
        return run(measured(works, seconds, counted))
    return run(over_lines(layout.line, file, work, works, seconds, counted))


async def over_lines(
    line: LinkQuality, file: Path, work: Work, works: Mapping[str, Work], seconds: float, counted: Counted
) -> Work:
    """First a plain pump between the ports where links are dialled and taken, then the sites, through one emulator."""
    topology = load(file)
    (join,) = topology.joins
    far = [topology.system(link.far.system).takes_links_at(link.far.process)[0] for link in all_links(topology)]
    ends = [(join.dial.port + at, each.port) for at, each in enumerate(far) if join.dial is not None and each]
    lines = Lines(line, ends, file.with_suffix(".log"))
    try:
        await lines.start()
        sink = work | {"part": "sink", "ports": sorted({port for _, port in ends})}
        source = work | {"part": "source", "ports": [port for port, _ in ends]}
        pumped = await measured({"sink": sink, "source": source}, seconds, everywhere)
        return await measured(works, seconds, counted) | {"pumped": pumped["rate"]}
    finally:
        await lines.kill()


def group(
    work: Work, file: Path, ports: Ports, seconds: float, *, members: int, senders: int = 0, os_processes: int = 1
) -> Work:
    """Deliveries per second of one system over loopback TCP; so many send, or everybody."""
    names = [f"p{number}" for number in range(1, members + 1)]
    text = f'[systems.group]\nkind = "embedded"\norder = "causal"\nprocesses = {names}\n'
    file.write_text(f'{text}address = "{LOOPBACK}:{ports.take(members)}"\n')
    settings = {"sockets_only": True} if "sockets_only" in SystemSpec.__struct_fields__ else {}
    works = {}
    for number in range(os_processes):
        here = names[number::os_processes]
        sending = [name for name in here if name in names[: senders or members]]
        works[f"part {number + 1}"] = work | {
            "site": "group",
            "members": here,
            "senders": sending,
            "settings": settings,
        }
    return run(measured(works, seconds, everywhere))


def bare(work: Work, file: Path, ports: Ports, seconds: float, *, members: int) -> Work:
    """What such a group would deliver if there were nothing to do but to read and write its frames."""
    names = [f"p{number}" for number in range(1, members + 1)]
    first = ports.take(members)
    here = work | {"part": "bare", "members": names, "ports": list(range(first, first + members))}
    return run(measured({"part 1": here}, seconds, everywhere))


def everywhere(part: str, process: str) -> bool:
    return True


def simulated(work: Work, file: Path, ports: Ports, seconds: float, *, members: int, senders: int = 0) -> Work:
    """Deliveries per second of one system in the simulator, checking off; so many send, or everybody."""
    at_once, pause = work["at_once"], round(work["pause"] * SECOND) or HOP
    sometimes = Sometimes()
    names = Directory([ProcessName("group", f"p{index}") for index in range(members)])
    world = World(names, Network(Random(1), Fixed(HOP), None, NetworkFaults(), sometimes), sometimes, check=False)
    meter, payloads = Meter(work["profile"]), payloads_of(at_once, work["size"])

    def send(host: Host) -> None:
        if host.member.credit() >= at_once:
            world.step(host, host.member.broadcast, payloads)
        world.at(world.now + pause, send, host)

    for index in range(members):
        host = Host(GroupMember(index, range(members), CausalOrder), None, lambda host, batch: meter.take("", batch))
        world.start(host)
        if index < (senders or members):
            world.at(index * pause // members, send, host)

    def simulate(seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            # Everybody's heartbeats come at the same moment: half a period would have all of them or none.
            world.run_until(world.now + GroupSettings().heartbeat)

    simulate(min(WARM_UP, seconds))
    before = {"simulator": meter.begin()}
    simulate(seconds)
    return difference(before, {"simulator": meter.end()}, everywhere)


def main(what: str, text: str) -> None:
    # With two connections for each pair of processes, 64 of 128 in one OS process take 16,300 files.
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    order = json.loads(text)
    if what == "part":
        run(part(order))
        return
    how: Any = {"joined": joined, "group": group, "bare": bare, "simulated": simulated}[what]
    with tempfile.TemporaryDirectory(prefix="isthmus-targets-") as directory:
        file = Path(directory) / "targets.toml"
        work = DEFAULTS | {"part": "site", "topology": str(file), "profile": order["profile"]} | order["load"]
        figures = how(work, file, Ports(), order["seconds"], **order["settings"])
    say(figures | {"load": os.getloadavg()[0]})


if __name__ == "__main__":
    main(*sys.argv[1:])
