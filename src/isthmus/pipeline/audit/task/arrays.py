"""One run as arrays of numbers: who sent what to whom, who delivered it when, and which logs can be trusted.

The rules are those of `trace.history`, for arrays instead of objects: everything about message m stands at place m,
everything about process p at place p. Names are 64-bit codes here (see `codes`).

Messages lie on **chains**. A placed message is on the chain of its sender, at its rank among that sender's messages. A
message that nobody sent has no place in any order, so it is a chain of its own. A causal past then holds a prefix of
every chain, and is one count per chain.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from isthmus.pipeline.audit.codes import CRASH, DELIVER, JOIN, LEAVE, SEND, VIEW, is_last

Array: TypeAlias = Any
"""A numpy array. Its element types are said where they matter."""

NEVER = np.iinfo(np.int64).max
NOBODY = -1


class ViewEntry(NamedTuple):
    """A process enters a view: at which index and place of its log, who counts that view, and its number as text."""

    at: int
    place: int
    group: int
    number: str


class RunArrays:
    """The rows of one run, in any order, as they come from Spark. `destinations` holds arrays of codes or None."""

    def __init__(
        self,
        process: Array,
        app: Array,
        index: Array,
        kind: Array,
        origin: Array,
        seq: Array,
        audience: Array,
        destinations: Any,
        name: Any,
    ) -> None:
        self.rows = len(process)
        pid, self.codes = pd.factorize(process)
        order = None
        if np.any((pid[1:] < pid[:-1]) | ((pid[1:] == pid[:-1]) & (index[1:] < index[:-1]))):
            order = np.lexsort((index, pid))
            pid, app, index, kind = pid[order], app[order], index[order], kind[order]
            origin, seq, audience = origin[order], seq[order], audience[order]
        self.processes = len(self.codes)
        self._trust_logs(pid, app, index, kind)
        self._find_views(pid, np.flatnonzero(app & (kind == VIEW)), index, origin, name, order)

        about = app & ((kind == SEND) | (kind == DELIVER))
        pid, index, kind, origin, seq = pid[about], index[about], kind[about], origin[about], seq[about]
        audience = audience[about]
        source = (np.flatnonzero(about) if order is None else order[about]) if audience.any() else None
        sender_of_row, self.sender_codes = pd.factorize(origin)
        self.senders = len(self.sender_codes)
        place = {code: number for number, code in enumerate(self.codes.tolist())}
        self.log_of_sender = np.array([place.get(code, NOBODY) for code in self.sender_codes.tolist()], dtype=np.int64)
        message = self._number_messages(sender_of_row, seq)
        self._find_sends(pid, index, kind, message)
        self._split_by_process(pid, index, kind, message)
        self._address(audience, source, destinations, name, kind, index, message)
        self._place()

    # Logs

    def _trust_logs(self, pid: Array, app: Array, index: Array, kind: Array) -> None:
        starts = np.flatnonzero(np.r_[True, pid[1:] != pid[:-1]]) if self.rows else np.zeros(0, np.int64)
        counts = np.diff(np.r_[starts, self.rows])
        local = np.arange(self.rows) - np.repeat(starts, counts)
        expected = np.where(index == local, NEVER, local)
        by_pid = pid[starts]
        self.first_gap = np.full(self.processes, NEVER, np.int64)
        """The first index that is missing before the last row."""
        self.complete = np.zeros(self.processes, bool)
        if self.rows:
            self.first_gap[by_pid] = np.minimum.reduceat(expected, starts)
            self.complete[by_pid] = is_last(kind[starts + counts - 1])
        self.complete &= self.first_gap == NEVER
        self.app = self._any(pid, app)
        self.joined = self._any(pid, app & (kind == JOIN))
        self.crashed = self._any(pid, app & (kind == CRASH))
        self.gone = self.crashed | self._any(pid, app & (kind == LEAVE))
        self.members = np.flatnonzero(self.app)

    def _find_views(self, pid: Array, places: Array, index: Array, group: Array, name: Any, order: Array) -> None:
        """Per process its views, in order. They are few, so objects will do."""
        self.views: list[list[ViewEntry]] = [[] for _ in range(self.processes)]
        numbers = name.take(places if order is None else order[places]).to_pylist() if len(places) else []
        for place, number in zip(places.tolist(), numbers, strict=True):
            self.views[pid[place]].append(ViewEntry(int(index[place]), place, int(group[place]), number))

    def _any(self, pid: Array, condition: Array) -> Array:
        found = np.zeros(self.processes, bool)
        found[pid[condition]] = True
        return found

    # Messages

    def _number_messages(self, sender: Array, seq: Array) -> Array:
        """Messages by sender and then by sequence number; returns the message of each row."""
        if not len(seq):
            self.messages, self.sender, self.seq = 0, np.zeros(0, np.int64), np.zeros(0, np.int64)
            return np.zeros(0, np.int64)
        highest = np.zeros(self.senders, np.int64)
        np.maximum.at(highest, sender, seq)
        room = float(highest.astype(float).sum())
        if room <= 4 * len(seq) + 1000:
            # Numbers without big holes: a table finds each message without sorting.
            bases = np.r_[0, np.cumsum(highest)]
            cell = bases[sender] + seq - 1
            there = np.zeros(bases[-1], bool)
            there[cell] = True
            number = np.cumsum(there) - 1
            cells = np.flatnonzero(there)
            self.sender = np.searchsorted(bases, cells, side="right") - 1
            self.seq = cells - bases[self.sender] + 1
            message = number[cell]
        else:
            dense, seqs = pd.factorize(seq, sort=True)
            keys, message = np.unique(sender * len(seqs) + dense, return_inverse=True)
            self.sender, self.seq = keys // len(seqs), seqs[keys % len(seqs)]
        self.messages = len(self.sender)
        return message

    def _find_sends(self, pid: Array, index: Array, kind: Array, message: Array) -> None:
        sends = np.flatnonzero(kind == SEND)[::-1]  # the first row wins, because it is written last
        self.sent_at = np.full(self.messages, -1, np.int64)
        self.sent_at[message[sends]] = index[sends]
        delivered = kind == DELIVER
        self.delivered = np.zeros(self.messages, bool)
        self.delivered[message[delivered]] = True
        self._send_row = np.full(self.messages, -1, np.int64)
        self._send_row[message[sends]] = sends

    def _split_by_process(self, pid: Array, index: Array, kind: Array, message: Array) -> None:
        """Per process its deliveries (message, index) in order, repeats included, and its first sends."""
        bounds = np.searchsorted(pid, np.arange(self.processes + 1))
        self.deliveries: list[tuple[Array, Array]] = []
        self.sends: list[tuple[Array, Array]] = []
        for process in range(self.processes):
            part = slice(bounds[process], bounds[process + 1])
            is_delivery = kind[part] == DELIVER
            self.deliveries.append((message[part][is_delivery], index[part][is_delivery]))
            own, at = message[part][~is_delivery], index[part][~is_delivery]
            first = self.sent_at[own] == at
            self.sends.append((own[first], at[first]))
        self.deliver_rows = int(sum(len(messages) for messages, _ in self.deliveries))

    # For whom

    def _address(
        self, audience: Array, source: Array, destinations: Any, name: Any, kind: Array, index: Array, message: Array
    ) -> None:
        """`addressed[m]` is the number of a set of destinations, or NOBODY for everyone."""
        self.addressed = np.full(self.messages, NOBODY, np.int64)
        self.audiences = np.zeros((0, self.processes), bool)
        self.lost_destinations = np.zeros(0, np.int64)
        self.broadcast = not audience.any()
        if self.broadcast:
            return
        row_of = self._send_row.copy()
        # Without a `send` row, a `deliver` row says for whom it was: the first by name of process and index.
        telling = np.flatnonzero((kind == DELIVER) & (audience != 0) & (self._send_row[message] < 0))
        if len(telling):
            names = np.array(name.take(source[telling]).to_pylist(), dtype=object)
            by_name = np.lexsort((index[telling], pd.factorize(names, sort=True)[0]))[::-1]
            row_of[message[telling[by_name]]] = telling[by_name]
        known = np.flatnonzero((row_of >= 0) & (audience[row_of] != 0))
        sets, first, numbers = np.unique(audience[row_of[known]], return_index=True, return_inverse=True)
        self.addressed[known] = numbers
        lists = destinations.take(source[row_of[known[first]]]).to_pylist()
        place = {code: number for number, code in enumerate(self.codes.tolist())}
        self.audiences = np.zeros((len(sets), self.processes), bool)
        self.lost_destinations = np.zeros(len(sets), np.int64)
        for number, codes in enumerate(lists):
            inside = [place[code] for code in set(codes) if code in place]
            self.audiences[number, inside] = True
            self.lost_destinations[number] = len(set(codes)) - len(inside)

    def is_for(self, process: int) -> Array:
        """Which messages are for a process."""
        if self.broadcast:
            return np.ones(self.messages, bool)
        if not len(self.audiences):
            return self.addressed == NOBODY
        return (self.addressed == NOBODY) | self.audiences[self.addressed, process]

    # Order

    def _place(self) -> None:
        """Rank each sender's messages: by their `send` rows, and by their numbers where those rows are lost."""
        sent = self.sent_at >= 0
        complete = self._of_sender(self.complete)
        self.crashed_sender = self._of_sender(self.crashed)
        self.complete_sender = complete
        # Messages are in the order of numbers; a sender is monotone when its `send` rows are in the same order.
        sent_messages = np.flatnonzero(sent)
        senders, at = self.sender[sent_messages], self.sent_at[sent_messages]
        falling = (senders[1:] == senders[:-1]) & (at[1:] < at[:-1])
        monotone = np.ones(self.senders, bool)
        monotone[senders[1:][falling]] = False
        placed = sent | (~complete[self.sender] & monotone[self.sender] if self.messages else sent)
        by_time = np.flatnonzero(placed)
        if not monotone.all():
            keys = np.where(monotone[self.sender[by_time]], by_time, self.sent_at[by_time])
            by_time = by_time[np.lexsort((keys, self.sender[by_time]))]
        unplaced = np.flatnonzero(~placed)
        self.chains = self.senders + len(unplaced)
        self.on_chain = np.r_[by_time, unplaced]
        """All messages, chain by chain, each chain by rank."""
        self.chain = self.sender.copy()
        self.chain[unplaced] = self.senders + np.arange(len(unplaced))
        lengths = np.bincount(self.chain, minlength=self.chains)
        self.base = np.r_[0, np.cumsum(lengths)]
        """Where each chain begins in `on_chain`."""
        self.rank = np.zeros(self.messages, np.int64)
        self.rank[self.on_chain] = np.arange(self.messages) - self.base[self.chain[self.on_chain]]
        self.placed = placed

    def _of_sender(self, of_process: Array) -> Array:
        """A property of logs, by sender. A log that is lost has none."""
        known = self.log_of_sender >= 0
        found = np.zeros(self.senders, bool)
        found[known] = of_process[self.log_of_sender[known]]
        return found

    # Questions

    def never_sent(self) -> Array:
        """Messages that nobody sent, where we would know."""
        return (self.sent_at < 0) & self.complete_sender[self.sender]

    def some_past_is_open(self) -> bool:
        """Some delivered message was sent after things that we do not see."""
        gaps = np.zeros(self.senders, np.int64)
        known = self.log_of_sender >= 0
        gaps[known] = self.first_gap[self.log_of_sender[known]]
        is_known = (self.sent_at >= 0) & (self.sent_at < gaps[self.sender])
        return bool(np.any(self.delivered & ~is_known & ~self.never_sent()))

    def positions(self, process: int) -> Array:
        """Message to its place among the deliveries of a process, or -1."""
        messages = self.deliveries[process][0]
        found = np.full(self.messages, -1, np.int64)
        found[messages[::-1]] = np.arange(len(messages) - 1, -1, -1)
        return found

    def owed_from(self, process: int) -> Array:
        """Chain to the rank from which on a process owes its messages. One that was there from the start owes all."""
        if not self.joined[process]:
            return np.zeros(self.chains, np.int64)
        owed = np.full(self.chains, NEVER, np.int64)
        messages = self.deliveries[process][0]
        messages = messages[self.placed[messages]][::-1]
        owed[self.chain[messages]] = self.rank[messages] + 1
        return owed

    def text_key(self, message: int) -> tuple[int, int]:
        return int(self.sender_codes[self.sender[message]]), int(self.seq[message])
