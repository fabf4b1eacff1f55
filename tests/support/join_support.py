"""Join protocols on a table: what goes into a gateway and what it wants done, in words that people can read.

A `Desk` is one gateway. Every input returns lines, one for each thing that the gateway wants done, in the order of
their execution:

    relay q1/1..3                broadcast these in the own system
    finish p1 2                  finished with batch 2 of p1, and all before
    to g2: open 2@g1             a word to a fellow
    link 0: block 1 #4 p1/2      a word over a link

`2@g1` is the second epoch, opened by g1; `3@g2:2` the third, opened by g2 in view 2; `3@g2:2~4` the same, begun by the
far side in its view 4; `1` is the first of all. `p1/3` is message 3 of p1, and `#4` the number that a join gives it.
The words of PDUs are read as they are written (`Names.link_pdu`, `Names.fellow_pdu`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from isthmus.core.endpoint import Outbox, View
from isthmus.core.ids import MILLISECOND, ProcessId, slot_of
from isthmus.core.message import Batch
from isthmus.core.segment import Opened, Run, Segment
from isthmus.core.wire.join import (
    Behind,
    Block,
    Broken,
    Confirm,
    Epoch,
    FellowAssign,
    FellowBegin,
    FellowBehind,
    FellowBroken,
    FellowCaughtUp,
    FellowConfirm,
    FellowFree,
    FellowFreeze,
    FellowFrozen,
    FellowLink,
    FellowOpen,
    FellowPass,
    FellowPdu,
    FellowProgress,
    FellowResume,
    LinkPdu,
    Open,
    Progress,
    Resume,
    first_epoch,
)
from isthmus.join.grouped import GroupGateway
from isthmus.topology.file import parse
from isthmus.topology.model import Topology
from isthmus.topology.plans import plans
from isthmus.topology.wiring import all_links

RETRY_AFTER = 100 * MILLISECOND

_SECTIONS = ("after", "home", "behind", "with", "handed", "link")


def system(name: str, order: str, processes: str, gateways: str) -> str:
    """One system of a topology file; `processes` and `gateways` are names with spaces between."""
    return (
        f'[systems.{name}]\nkind = "embedded"\norder = "{order}"\n'
        f"processes = {processes.split()}\ngateways = {gateways.split()}\n"
    )


def join(one: str, other: str, order: str, more: str = "") -> str:
    return f'[[joins]]\nbetween = ["{one}", "{other}"]\norder = "{order}"\n{more}\n'


def two_systems(order: str = "causal", assign: str = "striped", system_order: str = "") -> Topology:
    """System a (p1 p2; gateways g1 g2) and system b (q1 q2; h1 h2), joined by link 0, g1 - h1, and link 1, g2 - h2."""
    inside = system_order or order
    sets = '[joins.transfer-sets]\n"a/g1" = ["p1"]\n"a/g2" = ["p2"]\n"b/h1" = ["q1"]\n"b/h2" = ["q2"]\n'
    more = f'links = 2\nassign = "{assign}"\n' + (sets if assign == "transfer-sets" else "")
    text = system("a", inside, "p1 p2", "g1 g2") + system("b", inside, "q1 q2", "h1 h2") + join("a", "b", order, more)
    return parse(text, "t.toml")


def three_gateways(order: str) -> Topology:
    """System a (p1 p2 p3; g1 g2 g3) and system b (q1 q2 q3; h1 h2 h3), joined by links 0, 1, 2; one origin by each."""
    sides = (("a", "g", "p"), ("b", "h", "q"))
    sets = "".join(f'"{side}/{gate}{n}" = ["{who}{n}"]\n' for side, gate, who in sides for n in (1, 2, 3))
    more = f'links = 3\nassign = "transfer-sets"\n[joins.transfer-sets]\n{sets}'
    text = system("a", order, "p1 p2 p3", "g1 g2 g3") + system("b", order, "q1 q2 q3", "h1 h2 h3")
    return parse(text + join("a", "b", order, more), "t.toml")


class Names:
    """Ids as people call them; every process of a topology has a name of its own here."""

    def __init__(self, topology: Topology) -> None:
        self._slots = [name.process for name in topology.directory().slots]
        assert len(set(self._slots)) == len(self._slots)

    def id(self, name: str) -> ProcessId:
        base, _, life = name.partition("+")
        return int(life or 0) << 16 | self._slots.index(base)

    def ids(self, names: str) -> tuple[ProcessId, ...]:
        return tuple(map(self.id, names.split()))

    def name(self, process: ProcessId) -> str:
        life = process >> 16
        return self._slots[slot_of(process)] + (f"+{life}" if life else "")

    # Messages: "p1/1..3 p2/1"

    def runs(self, words: Iterable[str]) -> list[Run]:
        found = []
        for word in words:
            origin, _, numbers = word.partition("/")
            first, _, last = numbers.partition("..")
            found.append((self.id(origin), int(first), int(last or first) - int(first) + 1))
        return found

    def segment(self, text: str) -> Segment:
        runs = self.runs(text.split())
        return Segment.pack(
            [(origin, seq, b"") for origin, first, count in runs for seq in range(first, first + count)]
        )

    def marks(self, words: Iterable[str]) -> list[tuple[ProcessId, int]]:
        return sorted((origin, first) for origin, first, _ in self.runs(words))

    def show_runs(self, runs: Iterable[Run]) -> str:
        return " ".join(
            f"{self.name(origin)}/{first}" + (f"..{first + count - 1}" if count > 1 else "")
            for origin, first, count in runs
        )

    def show_messages(self, messages: Iterable[Opened]) -> str:
        runs: list[Run] = []
        for origin, seq, _ in messages:
            if runs and runs[-1][0] == origin and runs[-1][1] + runs[-1][2] == seq:
                runs[-1] = (origin, runs[-1][1], runs[-1][2] + 1)
            else:
                runs.append((origin, seq, 1))
        return self.show_runs(runs)

    def show_marks(self, marks: Iterable[tuple[ProcessId, int]]) -> str:
        return " ".join(f"{self.name(origin)}/{seq}" for origin, seq in marks)

    # Epochs: "1", "2@g1", "3@g2:2", "3@g2:2~4"

    def epoch(self, text: str) -> Epoch:
        """An epoch that has begun at the far side. One that is only opened is this without the answer."""
        count, _, opener = text.partition("@")
        opener, _, answer = opener.partition("~")
        leader, _, term = opener.partition(":")
        return Epoch(int(term or 1), int(count), self.id(leader), int(answer or 1)) if leader else first_epoch()

    def show_epoch(self, epoch: Epoch) -> str:
        if epoch == first_epoch():
            return "1"
        term = f":{epoch.term}" if epoch.term > 1 else ""
        answer = f"~{epoch.answer}" if epoch.answer > 1 else ""
        return f"{epoch.number}@{self.name(epoch.leader)}{term}{answer}"

    # PDUs

    def link_pdu(self, text: str) -> LinkPdu:
        kind, words, more = _read(text)
        if kind == "block":
            first = int(words[1][1:]) if words[1].startswith("#") else 0
            segment = self.segment(" ".join(words[2 if first else 1 :]))
            return Block(self.epoch(words[0]), first, segment, self._home(more), self.marks(more["after"]))
        if kind == "confirm":
            return Confirm(self.marks(words))
        epoch = self.epoch(words[0])
        if kind == "progress":
            return Progress(epoch, int(words[1][1:]))
        if kind == "resume":
            return Resume(epoch, self.marks(more["behind"]))
        return Open(epoch.opened) if kind == "open" else {"broken": Broken, "behind": Behind}[kind](epoch)

    def _home(self, more: Mapping[str, list[str]]) -> int | None:
        return self.id(more["home"][0]) if more["home"] else None

    def fellow_pdu(self, text: str, join: int = 0) -> FellowPdu:
        kind, words, more = _read(text)
        links = [int(word) for word in more["link"] if word.isdigit()]
        final, handed = self.marks(more["behind"]), self.marks(more["handed"])
        if text == "caught up":
            return FellowCaughtUp(join)
        if kind == "pass":
            block = self.link_pdu(text.removeprefix("pass "))
            assert isinstance(block, Block)
            return FellowPass(join, block)
        if kind == "confirm":
            return FellowConfirm(join, self.marks(words))
        if text.startswith("link "):
            number, state = text.split()[1:]
            return FellowLink(join, int(number), state == "up")
        epoch = self.epoch(words[0])
        makers: Mapping[str, Callable[[], FellowPdu]] = {
            "open": lambda: FellowOpen(join, epoch.opened),
            "resume": lambda: FellowResume(join, epoch, final),
            "broken": lambda: FellowBroken(join, epoch),
            "behind": lambda: FellowBehind(join, epoch),
            "free": lambda: FellowFree(join, epoch, links[0]),
            "assign": lambda: FellowAssign(
                join,
                epoch,
                int(words[1][1:]),
                links[0],
                self.runs(words[2:]),
                self._home(more),
                self.marks(more["after"]),
            ),
            "progress": lambda: FellowProgress(join, epoch, int(words[1][1:])),
            "freeze": lambda: FellowFreeze(join, epoch.opened),
            "frozen": lambda: FellowFrozen(join, epoch.opened, handed),
            "begin": lambda: FellowBegin(join, epoch, final, [self.id(name) for name in more["with"]]),
        }
        return makers[kind]()

    def show(self, pdu: LinkPdu | FellowPdu) -> str:
        match pdu:
            case Block(epoch, first, segment, home, after):
                number = f"#{first}" if first else ""
                parts = ["block", self.show_epoch(epoch), number, self.show_messages(segment)]
                where = "" if home is None else self.name(home)
                return _join(*parts, home=where, after=self.show_marks(after))
            case FellowPass(_, block):
                return f"pass {self.show(block)}"
            case Progress() | FellowProgress():
                return f"progress {self.show_epoch(pdu.epoch)} #{pdu.received}"
            case Confirm() | FellowConfirm():
                return _join("confirm", self.show_marks(pdu.marks))
            case Open() | FellowOpen():
                return f"open {self.show_epoch(pdu.epoch)}"
            case Broken() | FellowBroken():
                return f"broken {self.show_epoch(pdu.epoch)}"
            case Behind() | FellowBehind():
                return f"behind {self.show_epoch(pdu.epoch)}"
            case Resume(epoch, final):
                return _join("resume", self.show_epoch(epoch), behind=self.show_marks(final))
            case FellowResume(_, epoch, final):
                return _join("resume", self.show_epoch(epoch), behind=self.show_marks(final))
            case FellowLink(_, link, up):
                return f"link {link} {'up' if up else 'down'}"
            case FellowFree(_, epoch, link):
                return f"free {self.show_epoch(epoch)} link {link}"
            case FellowAssign(_, epoch, first, link, runs, home, after):
                words = f"assign {self.show_epoch(epoch)} #{first} {self.show_runs(runs)} link {link}"
                where = "" if home is None else self.name(home)
                return _join(words, home=where, after=self.show_marks(after))
            case FellowFreeze(_, epoch):
                return f"freeze {self.show_epoch(epoch)}"
            case FellowFrozen(_, epoch, handed):
                return _join(f"frozen {self.show_epoch(epoch)}", handed=self.show_marks(handed))
            case FellowBegin(_, epoch, final, company):
                names = " ".join(map(self.name, company))
                return _join(f"begin {self.show_epoch(epoch)}", behind=self.show_marks(final), **{"with": names})
            case FellowCaughtUp():
                return "caught up"
            case _:
                return pdu.__struct_config__.tag


def _read(text: str) -> tuple[str, list[str], dict[str, list[str]]]:
    """The kind of PDU, the words that follow it, and the words behind each of the words that open a section."""
    kind, *rest = text.split()
    sections: dict[str, list[str]] = {name: [] for name in _SECTIONS}
    plain: list[str] = []
    current = plain
    for word in rest:
        if word in sections:
            current = sections[word]
        else:
            current.append(word)
    return kind, plain, sections


def _join(*parts: str, **sections: str) -> str:
    return " ".join([*filter(None, parts), *(f"{name} {text}" for name, text in sections.items() if text)])


class Desk:
    """One gateway, and the members of its system as far as it knows.

    Links are ready whenever they are up, except in joins that are striped: there, tests say when.
    """

    def __init__(self, topology: Topology, name: str, *, joining: bool = False) -> None:
        self.names = Names(topology)
        self.name = name
        own = self.names.id(name)
        home = next(each.name for each in topology.systems if slot_of(own) in topology.slots(each.name))
        members = list(topology.slots(home))
        self.gateway = GroupGateway(own, members, plans(topology, home), RETRY_AFTER, joining=joining)
        self.now = 0
        self.view_number = 1
        self.batches: dict[str, int] = {}
        self.out = Outbox()
        striped = {plan.join for plan in plans(topology, home) if plan.share == "striped"}
        links = {end.link: plan.join for plan in plans(topology, home) for end in plan.links}
        self._always_ready = [link for link in self.gateway.links if links[link] not in striped]
        for link in self._always_ready:
            self.gateway.link_ready(link, self.now, self.out)

    # Inputs

    def delivers(self, text: str, sender: str = "", number: int = 0) -> list[str]:
        """A batch of the own system; the sender is the origin unless a gateway is named."""
        segment = self.names.segment(text)
        sender = sender or self.names.name(next(iter(segment.marks)))
        self.batches[sender] = number or self.batches.get(sender, 0) + 1
        batch = Batch(self.view_number, self.names.id(sender), self.batches[sender], [], 0, segment)
        return self._done(self.gateway.delivered_batch, batch)

    def view(self, members: str, number: int = 0, cut: Mapping[str, int] | None = None) -> list[str]:
        """`cut`: for one that comes, how many batches of each sender lie before the view."""
        self.view_number = number or self.view_number + 1
        self.gateway.begin_behind({self.names.id(name): count for name, count in (cut or {}).items()})
        return self._done(self.gateway.view, View(self.view_number, self.names.ids(members)))

    def takes_over(self, marks: str = "", *batches: tuple[str, int, str]) -> list[str]:
        """What was delivered before it came, per origin; and what its system holds of it: sender, number, messages."""
        held = [
            Batch(1, self.names.id(sender), number, [], 0, self.names.segment(text)) for sender, number, text in batches
        ]
        return self._done(self.gateway.take_over_batches, dict(self.names.marks(marks.split())), held)

    def settled(self, sender: str, number: int) -> list[str]:
        return self._done(self.gateway.settled_batches, self.names.id(sender), number)

    def all_have_arrived(self) -> list[str]:
        return self._done(self.gateway.all_have_arrived)

    def link(self, link: int, *words: str | LinkPdu) -> list[str]:
        pdus = [self.names.link_pdu(each) if isinstance(each, str) else each for each in words]
        return self._done(self.gateway.from_link, link, pdus)

    def fellow(self, source: str, *words: str | FellowPdu, join: int = 0) -> list[str]:
        pdus = [self.names.fellow_pdu(each, join) if isinstance(each, str) else each for each in words]
        return self._done(self.gateway.from_fellow, self.names.id(source), pdus)

    def up(self, link: int, peer: str) -> list[str]:
        lines = self._done(self.gateway.link_up, link, self.names.id(peer))
        return lines + (self._done(self.gateway.link_ready, link) if link in self._always_ready else [])

    def down(self, link: int) -> list[str]:
        return self._done(self.gateway.link_down, link)

    def ready(self, link: int) -> list[str]:
        return self._done(self.gateway.link_ready, link)

    def waits(self, nanos: int) -> list[str]:
        self.now += nanos
        return self._done(self.gateway.wake)

    # What it wants done

    def _done(self, action: Callable[..., None], *arguments: object) -> list[str]:
        self.out = Outbox()
        action(*arguments, self.now, self.out)
        done = 0
        while done < len(self.out.links):
            link, pdu = self.out.links[done]
            done += 1
            if isinstance(pdu, Block) and link in self._always_ready:
                self.gateway.link_ready(link, self.now, self.out)
        self.gateway.invariants()
        show, name = self.names.show, self.names.name
        lines = []
        if self.out.relays:
            lines.append("relay " + self.names.show_messages(chain.from_iterable(self.out.relays)))
        lines += [f"finish {name(sender)} {number}" for sender, number in self.out.confirms]
        for destinations, pdu in self.out.to_fellows:
            where = f" of join {pdu.join}" if pdu.join else ""
            lines += [f"to {name(each)}: {show(pdu)}{where}" for each in destinations]
        lines += [f"link {link}: {show(pdu)}" for link, pdu in self.out.links]
        return lines


class Scene:
    """Several gateways, with words and blocks on their way between them until somebody carries them.

    Systems are the test's to play: `broadcasts` holds, per gateway, what it wants broadcast, batch by batch.
    """

    def __init__(self, topology: Topology, *names: str) -> None:
        self.desks = {name: Desk(topology, name) for name in names}
        self.ends = [(link.near.process, link.far.process) for link in all_links(topology)]
        self.words: list[tuple[str, str, FellowPdu]] = []
        self.wires: list[tuple[int, str, LinkPdu]] = []
        self.broadcasts: dict[str, list[str]] = {name: [] for name in names}
        self.delivered: dict[str, list[str]] = {}

    def do(self, name: str, what: str, *arguments: Any, **options: Any) -> list[str]:
        """One input of one gateway; what it has to say is on its way then."""
        desk = self.desks[name]
        lines: list[str] = getattr(desk, what)(*arguments, **options)
        out, names = desk.out, desk.names
        if out.relays:
            self.broadcasts[name].append(names.show_messages(chain.from_iterable(out.relays)))
        self.words += [(name, names.name(to), pdu) for destinations, pdu in out.to_fellows for to in destinations]
        for link, pdu in out.links:
            near, far = self.ends[link]
            self.wires.append((link, far if name.partition("+")[0] == near else near, pdu))
        return lines

    def add(self, desk: Desk) -> None:
        self.desks[desk.name] = desk
        self.broadcasts[desk.name] = []

    def crash(self, name: str) -> None:
        """What it has sent is on its way; it neither says nor hears anything from now on."""
        del self.desks[name]

    def talk(self) -> None:
        """Carry words between fellows until there are none."""
        while self.words:
            source, to, pdu = self.words.pop(0)
            if to in self.desks:
                self.do(to, "fellow", source, pdu)

    def carry(self, *links: int) -> None:
        """Carry what is on these links until they are empty, and the words that it causes."""
        self.talk()
        while (first := next((each for each in self.wires if each[0] in links), None)) is not None:
            self.wires.remove(first)
            link, to, pdu = first
            if to in self.desks:
                self.do(to, "link", link, pdu)
                self.talk()

    def deliver(self, sender: str, text: str, *at: str) -> None:
        """A batch is delivered by these members; those that are no gateways only write it down."""
        for name in at:
            self.delivered.setdefault(name, []).extend(text.split())
            if name in self.desks:
                self.do(name, "delivers", text, sender)

    def everybody(self, names: Iterable[str], what: str, *arguments: Any) -> None:
        for name in names:
            self.do(name, what, *arguments)
