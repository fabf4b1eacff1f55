"""One judge per property, in `JUDGES`. `checked` and `violations` count what docs/trace-format.md says they count."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct, convert

from isthmus.pipeline.engine.causes import describe_chains
from isthmus.pipeline.engine.edges import Chain, Stretch, close
from isthmus.pipeline.engine.finding import WITNESSES, Described, Finding
from isthmus.pipeline.engine.logs import Array
from isthmus.pipeline.engine.receiver import Receiver, Unmet
from isthmus.pipeline.engine.run import Judge, Look, Run
from isthmus.trace.history import life_of
from isthmus.trace.properties import Mistake

Judges: TypeAlias = Mapping[str, Judge | None]
"""Property to its judge; None where nobody can judge it here."""


def judges_of(properties: Iterable[str]) -> Judges:
    return {each: JUDGES[each](each) if each in JUDGES else None for each in properties}


# Single messages ------------------------------------------------------------------------------------------------------


class Integrity(Judge):
    def look(self, receiver: Receiver, found: Finding) -> None:
        chains, place = receiver.chains, receiver.place
        found.unknown = chains.open_message
        found.checked = receiver.deliveries
        address, places = receiver.again()
        for at in range(len(found.count(address))):
            first, second = receiver.index_of(address[at]), receiver.run.index_at(receiver.number, int(places[at]))
            self._describe(receiver, found, address[at], "again", first, second)
        for chain in range(chains.count):
            never = chains.never_sent(chain)
            if never is not None and never.any():
                span = chains.span(chain, placed=False)
                self._wrong(receiver, found, span.start + np.flatnonzero(never & (place[span] >= 0)), "nobody")
        self._wrong(receiver, found, receiver.early(), "early")
        if receiver.for_me is not None:
            self._wrong(receiver, found, np.flatnonzero(~receiver.for_me & (place >= 0)), "stranger")

    def _wrong(self, receiver: Receiver, found: Finding, addresses: Array, kind: str) -> None:
        for address in found.count(addresses):
            self._describe(receiver, found, address, kind, receiver.index_of(address))

    def _describe(
        self, receiver: Receiver, found: Finding, address: int, kind: str, first: int | None, second: int | None = None
    ) -> None:
        text = receiver.chains.text(address)
        mistake = Mistake(process=receiver.name, first=text, first_index=first, second_index=second, kind=kind)
        found.described.append(Described(mistake))


class Agreement(Judge):
    def look(self, receiver: Receiver, found: Finding) -> None:
        log, chains = receiver.log, receiver.chains
        for chain in range(chains.count) if not log.gone else ():
            span = chains.span(chain, placed=False)
            owed, absent = receiver.owes(chain), receiver.place[span] < 0
            due = True if chains.sure[chain] else chains.delivered(chain)
            found.checked += int(np.count_nonzero(owed & due))
            missing = np.flatnonzero(owed & absent & due)
            if log.complete:
                for slot in found.count(missing):
                    text = chains.text(span.start + int(slot))
                    found.described.append(Described(Mistake(process=receiver.name, first=text)))
            elif len(missing):
                found.unknown = True
            if not chains.sure[chain]:
                elsewhere = _open_recipients(receiver.run, span) > (not log.complete)
                doubtful = owed & ~due & (elsewhere | (not chains.crashed[chain]))
                found.unknown |= bool(doubtful.any())

    def conclude(self, run: Run, looks: Sequence[Look]) -> Finding:
        """A process that has no rows at all is a destination whose log is lost."""
        found = super().conclude(run, looks)
        if not run.lost.any():
            return found
        for chain in range(run.chains.count):
            span = run.chains.span(chain, placed=False)
            lost = np.append(run.lost, 0)[run.store.get("audience")[span]]
            due = np.ones(len(lost), bool) if run.chains.sure[chain] else run.chains.delivered(chain)
            doubtful = ~due & ((_open_recipients(run, span) > 1) | (not run.chains.crashed[chain]))
            found.checked += int(lost[due].sum())
            found.unknown |= bool(((lost > 0) & (due | doubtful)).any())
        return found


def _open_recipients(run: Run, span: slice) -> Any:
    """How many destinations of each message have a log that is not complete."""
    opened = np.array([log.app and not log.complete for log in run.logs], bool)
    if not run.multicast:
        return np.int64(opened.sum())
    counts = np.append((run.audiences & opened).sum(axis=1) + run.lost, opened.sum())
    return counts[run.store.get("audience")[span]]


# Order ----------------------------------------------------------------------------------------------------------------


class Fifo(Judge):
    def look(self, receiver: Receiver, found: Finding) -> None:
        found.checked = receiver.distinct
        found.unknown = receiver.chains.open_past
        wrong = []
        for chain in range(receiver.chains.count):
            unmet = receiver.unmet_of_sender(chain)
            if unmet is not None:
                wrong += early(receiver, found, chain, unmet)
        for _, address in sorted(wrong)[:WITNESSES]:
            describe(receiver, found, address, np.array([address - 1]))


def early(receiver: Receiver, found: Finding, chain: int, unmet: Unmet) -> list[tuple[int, int]]:
    """Count deliveries that came too early; place and address of the first of them."""
    wrong = unmet.late
    if len(unmet.lacking):
        sure = unmet.lacking & (unmet.places < receiver.log.gap_place)
        found.unknown |= bool((unmet.lacking & ~sure).any())
        wrong = wrong | sure
    slots = np.flatnonzero(wrong)
    found.violations += len(slots)
    first = slots[np.argsort(unmet.places[slots])[:WITNESSES]]
    base = int(receiver.chains.base[chain]) + unmet.first
    return list(zip(unmet.places[first].tolist(), (base + first).tolist(), strict=True))


def describe(receiver: Receiver, found: Finding, second: int, past: Array) -> None:
    """A message was delivered, and something in its past was not there."""
    first = receiver.cause_of(past, int(receiver.place[second]))
    text = receiver.chains.text
    mistake = Mistake(
        process=receiver.name, first=text(first), second=text(second), first_index=receiver.index_of(first),
        second_index=receiver.index_of(second),
    )  # fmt: skip
    found.described.append(Described(mistake, first, second))


class Causal(Judge):
    """By direct edges where they are enough. A delivery counts when any cause of it is not there, direct or not, so a
    process where direct edges show something is judged again by closed ones."""

    def look(self, receiver: Receiver, found: Finding) -> bool:
        """Whether closed edges are needed here."""
        stretches = receiver.run.direct
        if any(receiver.hides(stretch) for stretch in stretches):
            return True
        judge_order(receiver, found, stretches)
        return found.violations > 0

    def conclude(self, run: Run, looks: Sequence[Look]) -> Finding:
        again = [look.number for look in looks if look.said]
        findings = [look.finding for look in looks if not look.said]
        if again:
            [closed] = run.each(close, [run.direct], list[Stretch])
            findings += run.each(judge_closed, [(number, closed) for number in again], Finding)
        found = Finding(self.judged).merge(findings)
        if found.described:
            [found.described] = run.each(describe_chains, [found.described], list[Described])
        return found


def judge_order(receiver: Receiver, found: Finding, stretches: Sequence[Stretch]) -> None:
    found.checked = receiver.distinct
    found.unknown = receiver.chains.open_past
    wrong = [
        (*each, number)
        for number, stretch in enumerate(stretches)
        for unmet in receiver.unmet(stretch)
        for each in early(receiver, found, stretch.chain, unmet)
    ]
    for _, second, number in sorted(wrong)[:WITNESSES]:
        describe(receiver, found, second, _past(receiver, stretches[number], second))


def _past(receiver: Receiver, stretch: Stretch, second: int) -> Array:
    """Addresses for the past of a message that came too early: what its sender saw, if that shows it, or all of it."""
    run = receiver.run
    slot = second - int(run.chains.base[stretch.chain])
    direct = Chain(run, [each for each in run.direct if each.chain == stretch.chain]).seen_before(slot)
    seen = np.append(direct, np.arange(second - 1, second) if slot else direct[:0])
    return seen if receiver.misses(seen, int(receiver.place[second])).any() else Chain(run, [stretch]).seen_before(slot)


def judge_closed(run: Run, job: tuple[int, Sequence[Stretch]]) -> Finding:
    """One process by closed edges."""
    number, closed = job
    found = Finding("")
    judge_order(Receiver(run, number), found, closed)
    return found


# Total order ----------------------------------------------------------------------------------------------------------


class Differ(Struct):
    """Two processes that deliver two messages in different orders."""

    one: int
    other: int
    first: int
    second: int


class Total(Judge):
    """A log that is part of the longest, in the same order, agrees with all others that are; the rest are compared pair
    by pair. Two logs differ iff two neighbours among their common messages do."""

    def look(self, receiver: Receiver, found: Finding) -> bool:
        found.checked = receiver.distinct
        longest = _longest(receiver.run)
        return receiver.number == longest or _is_part(receiver, longest)

    def conclude(self, run: Run, looks: Sequence[Look]) -> Finding:
        found = super().conclude(run, looks)
        distinct = {look.number: look.finding.checked for look in looks}
        strays = [look.number for look in looks if not look.said]
        others: defaultdict[int, list[int]] = defaultdict(list)
        for stray in strays:
            for other in run.members:
                if other < stray or (other > stray and other not in strays):
                    others[other].append(stray)
        jobs = [(other, [(one, distinct[one]) for one in ones]) for other, ones in others.items()]
        differing = [each for part in run.each(compare, jobs, list[Differ]) for each in part]
        differing.sort(key=lambda each: (each.one, each.other))
        found.described = run.each(describe_difference, found.count(differing), Described)
        if not found.violations:
            open_logs = [number for number in run.members if not run.logs[number].complete]
            found.unknown = any(run.each(may_differ, open_logs, bool))
        return found


def _longest(run: Run) -> int:
    return max(run.members, key=lambda number: run.logs[number].deliveries)


def _is_part(receiver: Receiver, longest: int) -> bool:
    """Whether all that a process delivered is in another log, in the same order."""
    common, last = 0, -1
    for order in receiver.run.orders(longest):
        places = receiver.place[order]
        places = places[places >= 0]
        if len(places):
            if places[0] <= last or not (places[1:] > places[:-1]).all():
                return False  # also where the other delivered something twice: the pair is looked at again
            common, last = common + len(places), int(places[-1])
    return common == receiver.distinct


def compare(run: Run, job: tuple[int, Sequence[tuple[int, int]]]) -> list[Differ]:
    """One log with others, of which it is known how many messages each delivered."""
    other, ones = job
    place = Receiver(run, other).place
    found = []
    for one, distinct in ones:
        orders = run.orders(one)
        if distinct < run.logs[one].deliveries:
            orders = [Receiver(run, one).order]
        short = [order[:1024] for order in orders[:1] if len(order) > 4096]  # most logs that differ do so soon
        two = _fallen(short, place) or _fallen(orders, place)
        if two is not None:
            found.append(Differ(one, other, *two))
    return found


def _fallen(orders: Sequence[Array], place: Array) -> tuple[int, int] | None:
    """The first two neighbours, among messages that have a place, whose places fall."""
    last = np.zeros(0, np.int64)
    for order in orders:
        common = np.concatenate([last, order[place[order] >= 0]])
        places = place[common]
        fallen = np.flatnonzero(places[1:] < places[:-1])
        if len(fallen):
            first, second = common[fallen[0] : fallen[0] + 2].tolist()
            return first, second
        last = common[-1:]
    return None


def describe_difference(run: Run, differ: Differ) -> Described:
    one, other = Receiver(run, differ.one), Receiver(run, differ.other)
    mistake = Mistake(
        process=one.name, first=run.chains.text(differ.first), second=run.chains.text(differ.second),
        first_index=one.index_of(differ.first), second_index=one.index_of(differ.second), other=other.name,
        other_first_index=other.index_of(differ.first), other_second_index=other.index_of(differ.second),
    )  # fmt: skip
    return Described(mistake)


def may_differ(run: Run, number: int) -> bool:
    """Could a process whose log is not complete have delivered what it misses in another order than others did?

    A message that is missing before a common one may have come later; one that is missing after, earlier in a gap.
    """
    mine = Receiver(run, number)
    owed = np.concatenate([np.zeros(0, bool), *map(mine.owes, range(run.chains.count))])
    missing_here = owed & (mine.place < 0)
    for other in run.members:
        order = Receiver(run, other).order
        missing, common = np.flatnonzero(missing_here[order]), np.flatnonzero(mine.place[order] >= 0)
        if other != number and len(missing) and len(common):
            if missing[0] < common[-1] or (mine.log.has_gap and common[0] < missing[-1]):
                return True
    return False


# Views ----------------------------------------------------------------------------------------------------------------


class Stay(Struct):
    """A process between two views: who counts them, their numbers, what it delivered, and whether there is a gap."""

    number: int
    group: tuple[str, int]
    view: str
    next_view: str
    start: int
    stop: int
    """First deliveries, by place in their order."""
    digest: str
    has_gap: bool


class SameView(Judge):
    def look(self, receiver: Receiver, found: Finding) -> list[Any]:
        log = receiver.log
        group = (log.system, life_of(log.name))
        places = receiver.place[receiver.order]
        stays = []
        for view, following in pairwise(log.views()):
            start, stop = np.searchsorted(places, (view.delivered, following.delivered)).tolist()
            digest = hashlib.sha256(np.sort(receiver.order[start:stop]).astype(np.int64).tobytes()).hexdigest()
            has_gap = following.row - view.row != following.index - view.index
            stays.append(Stay(receiver.number, group, view.number, following.number, start, stop, digest, has_gap))
        found.checked = len(stays)
        return stays

    def conclude(self, run: Run, looks: Sequence[Look]) -> Finding:
        found = super().conclude(run, looks)
        found.unknown = not any(log.app and log.views() for log in run.logs)
        stays: defaultdict[tuple[Any, ...], list[Stay]] = defaultdict(list)
        for look in looks:
            for each in look.said:
                stay = each if isinstance(each, Stay) else convert(each, Stay)
                stays[tuple(stay.group), stay.view, stay.next_view].append(stay)
        wrong = []
        for one, two in (pair for together in stays.values() for pair in combinations(together, 2)):
            if one.digest != two.digest:
                if one.has_gap or two.has_gap:
                    found.unknown = True
                else:
                    wrong.append((one, two))
        found.described = run.each(describe_stays, found.count(wrong), Described)
        return found


def describe_stays(run: Run, stays: tuple[Stay, Stay]) -> Described:
    delivered = [np.sort(Receiver(run, each.number).order[each.start : each.stop]) for each in stays]
    message = int(np.setxor1d(delivered[0], delivered[1], assume_unique=True)[0])
    having, lacking = stays if message in delivered[0] else stays[::-1]
    detail = f"between view {having.view} and view {having.next_view}"
    names = [run.logs[each.number].name for each in (lacking, having)]
    return Described(Mistake(process=names[0], first=run.chains.text(message), other=names[1], detail=detail))


JUDGES: dict[str, type[Judge]] = {
    "integrity": Integrity,
    "agreement": Agreement,
    "fifo": Fifo,
    "causal": Causal,
    "total": Total,
    "same-view": SameView,
}
