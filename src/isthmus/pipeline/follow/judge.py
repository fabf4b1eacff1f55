"""What the rows so far say about a run: violations, verdicts, and what may be forgotten.

A delivery of m at p is judged chain by chain: everything of a chain that is in the past of m and for p must have been
delivered at p before. Where the past of m is known when the delivery is read, one comparison with the frontier of p
does it. Where it is not, the delivery stays open and is judged at the end of every feed against what is known of its
past by then. Pasts only grow, so what is found wrong stays wrong, and each delivery is reported once.
"""

from __future__ import annotations

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import gt
from typing import NamedTuple, TypeAlias

from isthmus.pipeline.follow.state import UNSENT, Chain, Findings, FollowedMessage, Log, RunState
from isthmus.pipeline.follow.words import Words
from isthmus.trace.properties import Mistake, audited_properties
from isthmus.trace.schema import Answer, Verdict

NEVER = 1 << 63
FIFO_DONE, CAUSAL_DONE = 1, 2
JUDGED = FIFO_DONE | CAUSAL_DONE

LINKS = 0.1
"""Of `max_held`: while a run holds no more, it also keeps what is settled and may be a link of a chain of causes."""


class FollowJudge(Words):
    """Judges a state; a subclass reads rows into it."""

    def __init__(self, state: RunState, properties: Followed) -> None:
        super().__init__(state)
        self.properties = properties
        self.numbers = {log.name: number for number, log in enumerate(state.logs)}
        self._ladders: dict[tuple[int, int], tuple[list[int], int]] = {}

    def number_of(self, name: str) -> int:
        number = self.numbers.get(name)
        if number is None:
            number = self.numbers[name] = len(self.state.logs)
            self.state.logs.append(Log(name))
        return number

    # Pasts

    def new_chain(self, origin: int, *, loose: bool = False) -> int:
        self.state.chains.append(Chain(origin, loose))
        return len(self.state.chains) - 1

    def take_in(self, vector: list[int], message: FollowedMessage) -> bool:
        """A message and its past into a vector. Whether it grew."""
        past, chain, count = message.past, message.chain, message.rank + 1
        size = max(len(past), chain + 1)
        if len(vector) < size:
            vector += [0] * (size - len(vector))
        grown = vector[chain] < count
        if grown:
            vector[chain] = count
        if any(map(gt, past, vector)):
            vector[: len(past)] = map(max, past, vector)
            grown = True
        return grown

    def take_in_finals(self, log: Log) -> None:
        """Whatever a process has seen counts at once for what it sends; only what may still grow is remembered."""
        open_messages = []
        for identity in log.since:
            message = self.state.messages[identity]
            if message.rank != UNSENT:
                self.take_in(log.known, message)
            if not message.final:
                open_messages.append(identity)
        log.since = open_messages

    def _grow_pasts(self) -> None:
        """Close the pasts that may still grow over what is known, causes first; then see which cannot grow any more."""
        messages, pending = self.state.messages, self.state.pending
        if not pending:
            return
        effects: defaultdict[int, list[int]] = defaultdict(list)
        unmet: dict[int, int] = {}
        blocked: list[int] = []
        for identity in pending:
            causes = messages[identity].causes
            inside = [each for each in causes if each in pending]
            unmet[identity] = len(inside)
            for cause in inside:
                effects[cause].append(identity)
            if any(messages[each].rank == UNSENT for each in causes):
                blocked.append(identity)
        ready = [identity for identity, count in unmet.items() if not count]
        for identity in ready:  # grows while it is read
            self._grow(identity)
            for effect in effects[identity]:
                unmet[effect] -= 1
                if not unmet[effect]:
                    ready.append(effect)
        circles = [identity for identity, count in unmet.items() if count]
        growing = bool(circles)
        while growing:
            growing = False
            for identity in circles:
                growing |= self._grow(identity)
        reached = set(blocked)
        for identity in blocked:  # grows while it is read
            for effect in effects[identity]:
                if effect not in reached:
                    reached.add(effect)
                    blocked.append(effect)
        for identity in pending - reached:
            messages[identity].final = True
            messages[identity].causes = []
        for identity in reached:
            message = messages[identity]
            message.causes = [each for each in message.causes if not messages[each].final]
        self.state.pending = reached

    def _grow(self, identity: int) -> bool:
        messages = self.state.messages
        past, grown = messages[identity].past, False
        for each in messages[identity].causes:
            if messages[each].rank != UNSENT:
                grown |= self.take_in(past, messages[each])
        return grown

    # Deliveries that are judged when they are read

    def judge_fifo_now(self, number: int, log: Log, message: FollowedMessage, index: int) -> None:
        reached = self._reach(number, log, message.chain)
        if reached < message.rank:
            first = self._on_chain(message.chain, reached)
            self.overtaken("fifo", number, message, index, first)

    def judge_causal_now(self, number: int, log: Log, message: FollowedMessage, index: int) -> None:
        past, frontier = message.past, log.frontier
        if len(frontier) >= len(past) and not any(map(gt, past, frontier)):
            return
        for chain, count in enumerate(past):
            if count and (chain >= len(frontier) or count > frontier[chain]):
                reached = self._reach(number, log, chain)
                if reached < count:
                    self.overtaken("causal", number, message, index, self._on_chain(chain, reached))
                    return

    def _on_chain(self, chain_number: int, rank: int) -> FollowedMessage:
        chain = self.state.chains[chain_number]
        return self.state.messages[chain.held[rank - chain.base]]

    def _reach(self, number: int, log: Log, chain_number: int) -> int:
        """The rank of the first message of a chain that is for a process and was not delivered there so far."""
        frontier, chain, messages = log.frontier, self.state.chains[chain_number], self.state.messages
        if len(frontier) <= chain_number:
            frontier += [0] * (chain_number + 1 - len(frontier))
        rank = max(frontier[chain_number], chain.base)
        while rank < chain.end:
            message = messages[chain.held[rank - chain.base]]
            if number not in message.at and (message.to is None or number in message.to):
                break
            rank += 1
        frontier[chain_number] = rank
        return rank

    # At the end of a feed

    def judge(self) -> None:
        state = self.state
        self._resolve_unsent()
        self._grow_pasts()
        self._ladders.clear()
        for number, log in enumerate(state.logs):
            if log.since:
                self.take_in_finals(log)
            if log.open:
                self._judge_open(number, log)
        self.say_overtaken()
        for judging in self.properties.values():
            if judging is not None:
                judging.at_rest(self)
        self._forget()
        if state.held() + len(state.chains) > state.max_held:
            self.give_up(f"more than {state.max_held:,} messages and rows are not stable{self._oldest()}")
        state.finished = all(log.complete for log in state.logs if log.seen)
        if state.finished:
            self._forget()

    def _resolve_unsent(self) -> None:
        """A log that is complete and does not have a `send` row: nobody sent that message. It is a chain of its own."""
        state = self.state
        for number, chain in enumerate(list(state.chains)):
            if not chain.unsent or not state.logs[chain.origin].complete:
                continue
            for identity in sorted(chain.unsent):
                message = state.messages[identity]
                message.chain = self.new_chain(chain.origin, loose=True)
                message.rank, message.final = 0, True
                state.chains[message.chain].held.append(identity)
                if message.said is not None:
                    message.to = frozenset(map(self.number_of, message.said[1]))
                for log, index in message.at.items():
                    self.sent_by_nobody(log, message, index)
                    if message.to is not None and log not in message.to:
                        self.stranger(log, message, index)
            state.chains[number].unsent = set()

    def _judge_open(self, number: int, log: Log) -> None:
        """At one that joined, a later delivery can show an earlier one wrong, so all that is open is judged again."""
        messages = self.state.messages
        for place, (index, identity, done) in enumerate(log.open):
            message = messages[identity]
            if done == JUDGED or message.rank == UNSENT:
                continue
            now = done
            if not done & FIFO_DONE:
                earlier = [(message.chain, message.rank)]
                if self._unmet("fifo", number, log, message, index, earlier) or not log.joined:
                    now |= FIFO_DONE
            if not done & CAUSAL_DONE:
                wrong = self._unmet("causal", number, log, message, index, enumerate(message.past))
                if wrong or (message.final and not log.joined):
                    now |= CAUSAL_DONE
            log.open[place] = (index, identity, now)
        judged = 0
        while judged < len(log.open) and messages[log.open[judged][1]].final:
            if log.joined:
                self._close_at_joined(log, messages[log.open[judged][1]])
            judged += 1
        del log.open[:judged]

    def _close_at_joined(self, log: Log, message: FollowedMessage) -> None:
        past = message.past
        if len(log.behind) < len(past):
            log.behind += [0] * (len(past) - len(log.behind))
        log.behind[: len(past)] = map(max, past, log.behind)
        if not self.state.chains[message.chain].loose:
            log.owed_from.setdefault(message.chain, message.rank + 1)

    def _unmet(
        self,
        judged: str,
        number: int,
        log: Log,
        message: FollowedMessage,
        index: int,
        counts: Iterable[tuple[int, int]],
    ) -> bool:
        """Whether something of these chains was not there; if so, it is reported."""
        for chain_number, count in counts:
            chain = self.state.chains[chain_number]
            if count <= chain.base:
                continue
            latest, first_missing = self._ladder(number, log, chain_number)
            # Not at the same index: a circle may have a message in its own past, and nothing causes itself.
            if latest[count - chain.base - 1] > index:
                first = self._on_chain(chain_number, chain.base + bisect(latest, index))
            elif first_missing < count:
                first = self._on_chain(chain_number, first_missing)
            else:
                continue
            self.overtaken(judged, number, message, index, first)
            return True
        return False

    def _ladder(self, number: int, log: Log, chain_number: int) -> tuple[list[int], int]:
        """Of a chain at a process: by rank the latest index so far, and the rank of the first that is missing."""
        known = self._ladders.get((number, chain_number))
        if known is not None:
            return known
        chain, messages = self.state.chains[chain_number], self.state.messages
        owed_from = self._owed_from(log, chain_number)
        latest, so_far, first_missing = [], -1, NEVER
        for rank, identity in enumerate(chain.held, chain.base):
            message = messages[identity]
            if message.to is None or number in message.to:
                index = message.at.get(number)
                if index is None:
                    if owed_from <= rank < first_missing:
                        first_missing = rank
                elif index > so_far:
                    so_far = index
            latest.append(so_far)
        self._ladders[number, chain_number] = latest, first_missing
        return latest, first_missing

    def _owed_from(self, log: Log, chain_number: int) -> int:
        """The rank from which on a process owes the messages of a chain; `NEVER` while it owes none."""
        if not log.joined:
            return 0
        if self.state.chains[chain_number].loose:
            return NEVER
        known = log.owed_from.get(chain_number)
        if known is not None:
            return known
        for _, identity, _ in log.open:
            message = self.state.messages[identity]
            if message.chain == chain_number:
                return NEVER if message.rank == UNSENT else message.rank + 1
        return NEVER

    # Agreement, and what may be forgotten

    def _recipients(self, message: FollowedMessage) -> list[int]:
        logs = self.state.logs
        if message.to is None:
            return [number for number, log in enumerate(logs) if log.app]
        return [number for number in message.to if logs[number].app or not logs[number].seen]

    def _is_due(self, message: FollowedMessage) -> bool:
        sender = self.state.logs[self.state.chains[message.chain].origin]
        return bool(message.at) or (sender.complete and not sender.crashed)

    def _owes(self, log: Log, message: FollowedMessage) -> bool:
        return not log.gone and message.rank >= self._owed_from(log, message.chain)

    def judge_agreement(self) -> None:
        """Whoever has finished its log and does not have a message will never have it."""
        logs = self.state.logs
        finished = [number for number, log in enumerate(logs) if log.app and log.complete and not log.gone]
        for number in finished:
            log = logs[number]
            for message in self.state.messages.values():
                if message.rank == UNSENT or number in message.at or number in message.missing:
                    continue
                if (message.to is None or number in message.to) and self._is_due(message) and self._owes(log, message):
                    message.missing.append(number)
                    mistake = Mistake(process=log.name, first=self.name(message))
                    self.violated("agreement", mistake, f"{log.name} {mistake.first}")

    def _forget(self) -> None:
        """What was settled when rows came last is forgotten now: a log that has just turned up may still need it."""
        for chain in self.state.chains:
            for _ in range(chain.forgettable - chain.base):
                self._forget_first(chain)
            chain.forgettable = max(chain.forgettable, chain.base)
        keep_links = self.state.held() <= self.state.max_held * LINKS
        settling = True
        while settling:  # what waits for its causes may be settled with them
            settling = False
            for chain in self.state.chains:
                rank = chain.forgettable
                while rank < chain.end and self._is_forgettable(chain.held[rank - chain.base]):
                    if keep_links and self._is_link(chain.held[rank - chain.base]):
                        break
                    rank += 1
                settling |= rank > chain.forgettable
                chain.forgettable = rank

    def _is_link(self, identity: int) -> bool:
        """Something in its past is not settled. A violation that this shows may need it for its chain of causes."""
        message, chains = self.state.messages[identity], self.state.chains
        return any(
            # On its own chain those before it are settled. A circle may have others there.
            count > (message.rank + 1 if number == message.chain else chains[number].forgettable)
            for number, count in enumerate(message.past)
        )

    def _is_forgettable(self, identity: int) -> bool:
        message, logs = self.state.messages[identity], self.state.logs
        if not message.final:
            return False
        for number, index in message.at.items():
            log = logs[number]
            if log.open and log.open[0][0] <= index:
                return False
        return all(number in message.at or self._owes_no_more(number, message) for number in self._recipients(message))

    def _owes_no_more(self, number: int, message: FollowedMessage) -> bool:
        """One that did not deliver a message: will it never, and is nothing open at it for which that matters?"""
        log = self.state.logs[number]
        if log.open:
            return False
        if log.gone or message.rank < self._owed_from(log, message.chain):
            return True
        sender = self.state.logs[self.state.chains[message.chain].origin]
        return log.complete and (number in message.missing or sender.complete)

    def _forget_first(self, chain: Chain) -> None:
        state = self.state
        identity = chain.held.pop(0)
        chain.base += 1
        message = state.messages.pop(identity)
        for number in self._owing(message):
            state.logs[number].owed += 1
        origin = state.chains[state.logs[chain.origin].chain]
        del origin.by_seq[message.seq]
        origin.forget(message.seq)
        origin.addressed |= message.to is not None
        state.forgot = True

    def _owing(self, message: FollowedMessage) -> list[int]:
        """Who owes a message, or has delivered what it owed."""
        if not self._is_due(message):
            return []
        logs = self.state.logs
        return [number for number in self._recipients(message) if self._owes(logs[number], message)]

    def _oldest(self) -> str:
        for chain in self.state.chains:
            if chain.held:
                message = self.state.messages[chain.held[0]]
                late = [each for each in self._recipients(message) if each not in message.at]
                if late:
                    return f" ({self.name(message)} is not delivered at {self.state.logs[late[0]].name})"
        return ""

    def give_up(self, why: str) -> None:
        """Keep the counts and nothing else, and say so."""
        state = self.state
        state.given_up = why
        state.logs, state.chains, state.messages, state.pending = [], [], {}, set()
        self.warnings.append(
            f"run {state.run} is not followed any further: {why}; raise --max-held, or audit it when it is finished"
        )

    # Verdicts

    def findings(self) -> Findings:
        state = self.state
        return Findings(
            run=state.run,
            rows=state.rows,
            held=state.held(),
            finished=state.finished,
            awaited=sum(not log.seen for log in state.logs),
            verdicts=self._verdicts(),
            violations=self.violations,
            not_counted=state.not_counted,
            warnings=self.warnings,
        )

    def _verdicts(self) -> list[Verdict]:
        state = self.state
        # A row that did not count may have been another than the one that did.
        unsure = not state.finished or state.given_up is not None or bool(state.not_counted)
        verdicts = []
        for judged, judging in self.properties.items():
            count = state.counts.get(judged, 0)
            unknown = unsure or judging is None or judging.is_open(self)
            answer: Answer = "violated" if count else "unknown" if unknown else "holds"
            verdicts.append(Verdict(state.run, judged, answer, 0 if judging is None else judging.checked(self), count))
        return verdicts

    def deliveries(self) -> int:
        return sum(log.deliveries for log in self.state.logs if log.app)

    def first_deliveries(self) -> int:
        return sum(log.first_deliveries for log in self.state.logs if log.app)

    def owed(self) -> int:
        """Pairs of a message and a process that owes it."""
        forgotten = sum(log.owed for log in self.state.logs if log.app and not log.gone)
        return forgotten + sum(len(self._owing(message)) for message in self.state.messages.values())

    def some_are_unsent(self) -> bool:
        """A message was delivered, and whether it was sent depends on a log that never came."""
        return any(chain.unsent for chain in self.state.chains)

    def some_may_be_lost(self) -> bool:
        return self.some_are_unsent() or any(map(self._may_be_lost, self.state.messages.values()))

    def _may_be_lost(self, message: FollowedMessage) -> bool:
        logs = self.state.logs
        lost = sum(not logs[number].seen for number in self._recipients(message))
        if not lost:
            return False
        sender = logs[self.state.chains[message.chain].origin]
        return self._is_due(message) or lost > 1 or not sender.crashed


class Following(NamedTuple):
    """How a property is judged while rows come. Most violations are found where a row is read."""

    checked: Callable[[FollowJudge], int]
    is_open: Callable[[FollowJudge], bool]
    """All logs are complete: does the answer still depend on one that never came?"""
    at_rest: Callable[[FollowJudge], None] = lambda judge: None
    """What is judged when all rows of a feed were read."""


Followed: TypeAlias = Mapping[str, Following | None]
"""Property to how it is judged; None where it cannot be judged before a run is finished."""

FOLLOWED: dict[str, Following] = {
    "integrity": Following(FollowJudge.deliveries, FollowJudge.some_are_unsent),
    "agreement": Following(FollowJudge.owed, FollowJudge.some_may_be_lost, FollowJudge.judge_agreement),
    "fifo": Following(FollowJudge.first_deliveries, FollowJudge.some_are_unsent),
    "causal": Following(FollowJudge.first_deliveries, FollowJudge.some_are_unsent),
    "total": Following(FollowJudge.first_deliveries, lambda judge: False),
}
"""Without `same-view`: what was delivered between two views would have to be kept for as long as a view lasts."""


def followed_properties(expected: Iterable[str] = ()) -> Followed:
    """How the properties are judged that an audit always judges, and those that are expected."""
    return {name: FOLLOWED.get(name) for name in audited_properties(expected)}
