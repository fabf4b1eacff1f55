"""Rows of one run, as they arrive, into its state: logs in order, sends, deliveries, and all that shows at once.

Rows may come in any order. Each log is read by index; what lies behind a gap is parked. Among the rows that come
together, a delivery is taken after the `send` row of its message where both are there, because then its past is known
and it is judged at once and for good. Where that is not so it waits in `Log.open` for the end of the feed, see
`follow_judge`. No report waits for other rows: a violation is found in the feed that brings its last row.

Total order is judged here too. When a message becomes common to two processes, everything that they have had in common
before has a lower index in the log that is being read. So only the highest index in the other log has to be kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from isthmus.pipeline.follow.judge import FIFO_DONE, JUDGED, Followed, FollowJudge, followed_properties
from isthmus.pipeline.follow.state import UNSENT, Findings, FollowedMessage, Forgotten, Log, Row, RunState
from isthmus.trace.schema import LAST_EVENTS, TraceError

MAX_HELD = 1_000_000
MOST_READINGS = 20
"""A run that has to be read again more often than this is broken in a way that the batch audit is for."""

History = Callable[[], Iterable[Sequence[Row]]]
"""All rows of the run that have arrived, those of this feed included, in pieces of any size."""


def feed(
    state: RunState, rows: Sequence[Row], history: History, properties: Followed | None = None
) -> tuple[RunState, Findings]:
    """Take rows in; returns the state from now on, and what is new."""
    judged = followed_properties() if properties is None else properties
    if state.given_up is not None:
        state.rows += len(rows)
        return state, FollowJudge(state, judged).findings()
    reader = Reader(state, judged)
    try:
        reader.read(rows)
        return state, reader.findings()
    except Forgotten as reason:
        return _read_again(reader, reason, history)


def _read_again(reader: Reader, reason: Forgotten, history: History) -> tuple[RunState, Findings]:
    """From the beginning, with everything that is known about the members of the run by now."""
    state = reader.state
    offenders, members, readings = set(state.offenders), {log.name for log in state.logs if log.app}, state.again
    while True:
        offenders |= {reason.offender} if reason.offender else set()
        readings += 1
        fresh = RunState(state.run, state.max_held, reported=state.reported, again=readings, offenders=offenders)
        fresh.files = state.files
        found = reader.violations  # by a reading that was broken off, and true all the same
        reader = Reader(fresh, reader.properties)
        reader.violations = found
        if readings > MOST_READINGS:
            return _given_up(reader, state, f"it had to be read again {MOST_READINGS} times, at last because {reason}")
        for name in sorted(members):
            reader.log_of(name).app = True
        try:
            for chosen in (True, False):
                for piece in history():
                    part = [row for row in piece if (row.process in offenders) is chosen]
                    if part and fresh.given_up is None:
                        reader.read(part)
            return fresh, reader.findings()
        except Forgotten as another:
            members |= {log.name for log in fresh.logs if log.app}
            reason = another
        except TraceError as gone:
            return _given_up(reader, state, f"{reason}, so it has to be read again, but {gone}")


def _given_up(reader: Reader, before: RunState, why: str) -> tuple[RunState, Findings]:
    """What was counted until then stays."""
    reader.state.counts, reader.state.rows = before.counts, before.rows
    reader.give_up(why)
    return reader.state, reader.findings()


class Reader(FollowJudge):
    """Reads rows into a state."""

    def __init__(self, state: RunState, properties: Followed) -> None:
        super().__init__(state, properties)
        self.queues: dict[int, Iterator[Row]] = {}
        self.waiting: defaultdict[tuple[int, int], list[int]] = defaultdict(list)

    def log_of(self, name: str) -> Log:
        return self.state.logs[self.number_of(name)]

    def chain_of(self, name: str) -> int:
        number = self.number_of(name)
        log = self.state.logs[number]
        if log.chain < 0:
            log.chain = self.new_chain(number)
        return log.chain

    # Logs

    def read(self, rows: Iterable[Row]) -> None:
        arrived = self._arrived(rows)
        self.queues = {number: iter(queue) for number, queue in arrived.items() if queue}
        self._take_in_causal_order()
        self.judge()

    def _arrived(self, rows: Iterable[Row]) -> dict[int, list[Row]]:
        """Log to its rows that follow what was read without a gap."""
        state = self.state
        queues: dict[int, list[Row]] = {}
        members = 0
        for row in rows:
            state.rows += 1
            number = self.number_of(row.process)
            log = state.logs[number]
            log.seen = True
            if row.app and not log.app:
                log.app = True
                members += 1
            queue = queues.get(number)
            if queue is None:
                queue = queues[number] = []
            if row.index == log.next and not log.complete:
                queue.append(row)
                log.next += 1
                if row.event in LAST_EVENTS:
                    log.complete = True
                while log.parked and log.next in log.parked and not log.complete:
                    queue.append(log.parked.pop(log.next))
                    log.next += 1
                    log.complete = queue[-1].event in LAST_EVENTS
            elif row.index < log.next or row.index in log.parked or log.complete:
                state.not_counted += 1
            else:
                log.parked[row.index] = row
        for log in state.logs:
            if log.complete and log.parked:  # rows after the end
                state.not_counted += len(log.parked)
                log.parked = {}
        if members:
            if state.forgot:
                raise Forgotten(None, "the log of another process turned up")
            for chain in state.chains:
                chain.forgettable = chain.base
        return queues

    def _take_in_causal_order(self) -> None:
        """A log waits at a delivery while the log of the sender has rows left and did not come to the `send` row."""
        ready = list(self.queues)
        held_back: dict[int, Row] = {}
        while self.queues:
            forced = not ready
            number = next(iter(held_back)) if forced else ready.pop()
            queue = self.queues.get(number)
            if queue is None:
                continue
            row = held_back.pop(number, None) or next(queue, None)
            while row is not None:
                if not forced and row.event == "deliver" and row.app:
                    awaited = self._awaited(number, row)
                    if awaited is not None:
                        held_back[number] = row
                        self.waiting[awaited].append(number)
                        break
                forced = False  # a circle: go through it at one place
                self._take(number, row, ready)
                row = next(queue, None)
            else:
                del self.queues[number]
                chain = self.state.logs[number].chain
                for key in [each for each in self.waiting if each[0] == chain]:
                    ready += self.waiting.pop(key)
        self.waiting.clear()

    def _awaited(self, number: int, row: Row) -> tuple[int, int] | None:
        assert row.origin is not None
        sender = self.numbers.get(row.origin)
        if sender is None or sender == number or sender not in self.queues:
            return None
        chain = self.chain_of(row.origin)
        message = self.state.chains[chain].by_seq.get(row.seq)
        if message is not None and self.state.messages[message].rank != UNSENT:
            return None
        return None if self.state.chains[chain].has_forgotten(row.seq) else (chain, row.seq)

    def _take(self, number: int, row: Row, ready: list[int]) -> None:
        log = self.state.logs[number]
        event = row.event
        if not row.app:
            return
        if event == "deliver":
            self._deliver(number, log, row)
        elif event == "send":
            if row.origin == row.process:
                self._send(number, log, row)
                if self.waiting:
                    ready += self.waiting.pop((log.chain, row.seq), ())
        elif event == "join":
            log.joined = log.joined or not log.deliveries
        elif event == "crash":
            log.crashed = log.gone = True
        elif event == "leave":
            log.gone = True

    # Messages

    def _send(self, number: int, log: Log, row: Row) -> None:
        chain_number = self.chain_of(row.process)
        chain = self.state.chains[chain_number]
        if chain.has_forgotten(row.seq):
            return
        identity, message = self._message(chain_number, row.seq)
        if message.rank != UNSENT:
            return
        chain.unsent.discard(identity)
        message.rank, message.sent_at = chain.end, row.index
        chain.held.append(identity)
        if row.destinations is not None:
            message.to = frozenset(map(self.number_of, row.destinations))
        known = log.known
        if log.since:
            self.take_in_finals(log)
            message.causes = list(log.since)
        if len(known) <= chain_number:
            known += [0] * (chain_number + 1 - len(known))
        if message.rank > known[chain_number]:
            known[chain_number] = message.rank
        message.past = known.copy()
        known[chain_number] = max(known[chain_number], message.rank + 1)
        if message.causes:
            self.state.pending.add(identity)
            log.since = [identity]
        else:
            message.final = True
        for other, index in message.at.items():
            if other == number:
                self.not_sent_yet(number, message, index)
            self._not_for(other, message, index)
            self._not_backwards(self.state.logs[other], message)

    def _deliver(self, number: int, log: Log, row: Row) -> None:
        assert row.origin is not None
        log.deliveries += 1
        chain_number = self.chain_of(row.origin)
        origin = self.state.chains[chain_number]
        if origin.has_forgotten(row.seq):
            if log.joined or origin.addressed:
                raise Forgotten(log.name, f"{log.name} delivered {row.origin}/{row.seq}, which all others had finished")
            self.wrong_delivery("again", log.name, f"{row.origin}/{row.seq}", None, row.index)
            return
        identity, message = self._message(chain_number, row.seq)
        if number in message.at:
            self.wrong_delivery("again", log.name, self.name(message), message.at[number], row.index)
            return
        log.first_deliveries += 1
        if row.destinations is not None:
            self._hear(message, log.name, row.destinations)
        sent, final = message.rank != UNSENT, message.final
        if message.at:
            self._compare_order(number, log, message, row.index)
        message.at[number] = row.index  # before it is judged: a circle may have it in its own past
        if log.joined:
            self._not_backwards(log, message)
            log.open.append((row.index, identity, 0))
            if sent:  # nobody knew that it would deliver this: what was settled without it is not
                chain = self.state.chains[message.chain]
                chain.forgettable = min(chain.forgettable, message.rank)
        elif not sent:
            log.open.append((row.index, identity, 0))
        else:
            self.judge_fifo_now(number, log, message, row.index)
            if final:
                self.judge_causal_now(number, log, message, row.index)
                if log.open:
                    log.open.append((row.index, identity, JUDGED))
            else:
                log.open.append((row.index, identity, FIFO_DONE))
        if final:
            self.take_in(log.known, message)
        else:
            log.since.append(identity)
        if sent:
            self._not_for(number, message, row.index)
            if self.state.chains[message.chain].loose:
                self.sent_by_nobody(number, message, row.index)

    def _message(self, chain_number: int, seq: int) -> tuple[int, FollowedMessage]:
        state, chain = self.state, self.state.chains[chain_number]
        identity = chain.by_seq.get(seq)
        if identity is None:
            identity = chain.by_seq[seq] = state.next_message
            state.next_message += 1
            state.messages[identity] = FollowedMessage(chain_number, seq)
            chain.unsent.add(identity)
        return identity, state.messages[identity]

    def _hear(self, message: FollowedMessage, name: str, destinations: tuple[str, ...]) -> None:
        """Where there is no `send` row, a delivery says for whom a message was: the first by name of the process."""
        loose = self.state.chains[message.chain].loose
        if (message.rank == UNSENT or loose) and (message.said is None or name < message.said[0]):
            if loose:
                raise Forgotten(name, f"{name} says for whom {self.name(message)} was")
            message.said = (name, destinations)

    def _not_for(self, number: int, message: FollowedMessage, index: int) -> None:
        if message.to is not None and number not in message.to:
            self.stranger(number, message, index)

    def _not_backwards(self, log: Log, message: FollowedMessage) -> None:
        """One that joined delivers a cause of what it delivered before: all of that would have to be judged again."""
        chain = message.chain
        if log.joined and message.rank != UNSENT and chain < len(log.behind) and message.rank < log.behind[chain]:
            raise Forgotten(log.name, f"{log.name} delivered {self.name(message)} after its effects")

    def _compare_order(self, number: int, log: Log, message: FollowedMessage, index: int) -> None:
        logs, mine, seq = self.state.logs, log.together, message.seq
        chain = message.chain
        for other, other_index in message.at.items():
            theirs = logs[other].together
            latest = theirs.get(number)
            if latest is not None and latest[0] > other_index:
                self.order_differs(number, other, message, index, other_index, latest)
                continue
            theirs[number] = (other_index, index, chain, seq)
            mine[other] = (index, other_index, chain, seq)
