"""Sharing messages among links: nothing lost, numbers without a gap, whatever happens in which order.

`Side` is the sending side of a join without its epochs' protocol: gateways with one share each, the words between them
in flight, links that become ready, go down with some of what is on them and come up again, a far side that says how far
it is. Hypothesis decides what happens next. What a share does in plain runs is in `test_share_links.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from share_support import FAR_ORIGINS, ORIGINS, ROOM, STRIPE, WINDOW, plan_of, small_bounds

from isthmus.core.ids import MILLISECOND, SECOND, LinkId, Nanos
from isthmus.core.marks import SlotMarks
from isthmus.core.segment import Opened, Segment
from isthmus.core.wire.join import Line
from isthmus.join.outgoing import Outstanding
from isthmus.join.parcel import Lane, Parcel
from isthmus.join.plan import JoinPlan
from isthmus.join.plan import Share as Kind
from isthmus.join.share import SHARES, Share, Start, way

Happening: TypeAlias = tuple[Any, ...]
"""What can happen next, or a word between two gateways: a name, and what belongs to it."""

FAR = -1
"""The far side, as somebody who says words."""


class Post:
    """One gateway. `links` are those that work as far as it has heard; of its own links it knows at once.

    `causes` is, of each message, what had come in when it was delivered here; `came` is what has come in by now.
    """

    def __init__(self, plan: JoinPlan, owner: int) -> None:
        self.owner = owner
        self.mine = [end.link for end in plan.links if end.near == owner]
        self.links = {end.link for end in plan.links}
        self.lanes = {link: Lane(apart=plan.share == "sets") for link in self.mine}
        self.lines: dict[LinkId, Line] = {}
        self.outstanding = Outstanding()
        self.delivered: dict[int, int] = {}
        self.came: dict[int, int] = {}
        self.causes: dict[tuple[int, int], dict[int, int]] = {}
        self.parked: list[tuple[LinkId, Parcel]] = []
        self.epoch = 0
        self.paused = True
        self.received = 0
        self.share: Share = SHARES[plan.share](plan, self.outstanding, self.mine)

    def has(self, segment: Segment) -> bool:
        return all(self.delivered.get(origin, 0) >= seq for origin, seq in segment.ids())


class Side:
    """`messages` are all that there will ever be, those that come in too; out of a log, in this order.

    `numbers` is what each number of this epoch stands for, `copies` are all blocks that were put on a link with it.
    `calm` says that in this epoch no link has come or gone, and none was overdue.
    """

    def __init__(self, plan: JoinPlan, messages: Sequence[Opened]) -> None:
        self.plan = plan
        self.messages = messages
        self.numbered = plan.share != "by-origin"
        self.everybody = [end.link for end in plan.links]
        self.posts = {owner: Post(plan, owner) for owner in plan.fellows}
        self.words: dict[tuple[int, int], deque[tuple[int, Happening]]] = {}
        self.up = set(self.everybody)
        self.on_link: dict[LinkId, deque[Parcel]] = {link: deque() for link in self.everybody}
        self.epoch = 0
        self.now: Nanos = 0
        self.final: dict[int, int] = {}
        self.confirmed: dict[int, int] = {}
        self.blocks: list[tuple[LinkId, Parcel]] = []
        self.arrived: set[tuple[int, int]] = set()
        self.numbers: dict[int, Opened] = {}
        self.copies: dict[int, list[Parcel]] = {}
        self.received = 0
        self.calm = True
        self.opening = True
        self.begin(0)

    # What happens

    def enabled(self, *, to_the_end: bool = False) -> list[Happening]:
        actions: list[Happening] = []
        for owner, post in self.posts.items():
            actions += [("deliver", owner, origin) for origin in self.deliverable(post)]
        actions += [("ready", link) for link in sorted(self.up) if not self.lane(link).room]
        actions += [("arrive", link) for link, blocks in self.on_link.items() if blocks]
        actions += [("word", *pair) for pair, queue in self.words.items() if queue]
        if self.received < self.without_a_gap():
            actions.append(("progress",))
        if to_the_end:
            return actions
        # Faults are rare enough for something to be under way when they come.
        actions = 4 * actions
        actions += [("confirm", origin) for origin in ORIGINS if self.confirmed.get(origin, 0) < self.taken(origin)]
        actions += [("down" if link in self.up else "up", link) for link in self.everybody]
        awake = [owner for owner, post in self.posts.items() if not post.paused and post.share.deadline() is not None]
        actions += [("wake", owner) for owner in awake]
        actions.append(("begin",) if self.opening else ("pause",))
        return actions

    def happens(self, action: Happening, luck: int) -> None:
        self.now += luck % 50 * MILLISECOND
        match action:
            case ("deliver", owner, origin):
                self.deliver(self.posts[owner], origin, 1 + luck % 3)
            case ("ready", link):
                room = (ROOM // 4, ROOM, 2 * ROOM)[luck % 3]
                delay = (0, 10 * MILLISECOND, SECOND)[luck // 3 % 3]
                self.ready(link, Line(room, luck // 9 % 3 * MILLISECOND, delay, (0, 100, 10_000)[luck // 27 % 3]))
            case ("arrive", link):
                self.arrives(self.on_link[link].popleft())
            case ("word", source, to):
                self.hear(self.posts[to], *self.words[source, to].popleft())
            case ("progress",):
                self.received += 1 + luck % (self.without_a_gap() - self.received)
                self.tell_all(("progress", self.received))
            case ("confirm", origin):
                before = self.confirmed.get(origin, 0)
                self.confirmed[origin] = before + 1 + luck % (self.taken(origin) - before)
                self.tell_all(("confirm", origin, self.confirmed[origin]))
            case ("down", link):
                self.goes_down(link, luck)
            case ("up", link):
                self.up.add(link)
                self.links_change(link, up=True)
            case ("wake", owner):
                post = self.posts[owner]
                self.now = max(self.now, post.share.deadline() or 0)
                self.calm = False
                post.share.wake(self.now)
                self.send(post)
            case ("pause",):
                self.opening = True
                for post in self.posts.values():
                    self.pause(post)
            case ("begin",):
                self.begin(luck)

    # Deliveries

    def deliverable(self, post: Post) -> list[int]:
        """The origins of what may be delivered next: out of a log the next entry, else the next of any origin."""
        if self.plan.share == "counted":
            seen = sum(post.delivered.values())
            return [self.messages[seen][0]] if seen < len(self.messages) else []
        due = {(origin, post.delivered.get(origin, 0) + 1) for origin in (*ORIGINS, *FAR_ORIGINS)}
        return [origin for origin, seq, _ in self.messages if (origin, seq) in due]

    def deliver(self, post: Post, origin: int, count: int) -> None:
        """A batch. It has messages of ours or such that come in, never both."""
        batch: list[Opened] = []
        while len(batch) < count:
            following = [each for each in self.deliverable(post) if (each in ORIGINS) == (origin in ORIGINS)]
            if not following:
                break
            whose = following[(count + len(batch)) % len(following)] if batch else origin
            seq = post.delivered[whose] = post.delivered.get(whose, 0) + 1
            batch.append(next(each for each in self.messages if each[:2] == (whose, seq)))
        segment = Segment.pack(batch)
        if origin in FAR_ORIGINS:
            post.came.update(segment.marks)
            post.share.came_in(segment.marks)
            return
        post.causes.update({each: dict(post.came) for each in segment.ids()})
        fresh = post.outstanding.add(segment).beyond(post.outstanding.final)
        if fresh and not post.paused:
            post.share.add(fresh, self.now)
        self.send(post)

    # Links

    def lane(self, link: LinkId) -> Lane:
        return self.posts[self.plan.links[link].near].lanes[link]

    def ready(self, link: LinkId, line: Line) -> None:
        post = self.posts[self.plan.links[link].near]
        post.lanes[link].room = line.room
        post.lines[link] = line
        if not post.paused:
            self.offer(post, link)
            self.send(post)

    def offer(self, post: Post, link: LinkId) -> None:
        if not post.share.by_readiness:
            return
        if post.owner == self.leader:
            post.share.ready(link, post.lines[link], self.now)
        else:
            self.say(post.owner, self.leader, ("free", link, post.lines[link]))

    def goes_down(self, link: LinkId, luck: int = 0) -> None:
        """Some of what is on a link arrives although it goes down; of the rest nobody hears any more."""
        blocks = self.on_link[link]
        for _ in range(luck % (len(blocks) + 1)):
            self.arrives(blocks.popleft())
        blocks.clear()
        self.up.discard(link)
        post = self.posts[self.plan.links[link].near]
        post.lines.pop(link, None)
        post.lanes[link].room = 0
        post.lanes[link].waiting.clear()
        self.links_change(link, up=False)

    def links_change(self, link: LinkId, *, up: bool) -> None:
        owner = self.plan.links[link].near
        for other in self.posts:
            if other != owner:
                self.say(owner, other, ("link", link, up))
        self.relink(self.posts[owner], link, up=up)

    def relink(self, post: Post, link: LinkId, *, up: bool) -> None:
        self.calm = False
        (post.links.add if up else post.links.discard)(link)
        if not post.paused:
            post.share.relink(sorted(post.links), self.now)
            self.send(post)

    # Words

    def say(self, source: int, to: int, word: Happening) -> None:
        self.words.setdefault((source, to), deque()).append((self.epoch, word))

    def tell_all(self, word: Happening) -> None:
        for owner in self.posts:
            self.say(FAR, owner, word)

    def hear(self, post: Post, epoch: int, word: Happening) -> None:
        match word:
            case ("link", link, up):
                self.relink(post, link, up=up)
            case ("confirm", origin, seq):
                post.outstanding.confirm([(origin, seq)])
            case ("begin", final) if epoch == self.epoch and not self.opening:
                self.begin_at(post, final)
            case ("assign", link, parcel) if epoch == post.epoch and not post.paused:
                post.parked.append((link, parcel))
            case ("free", link, line) if epoch == post.epoch and not post.paused:
                assert post.owner == self.leader
                post.share.ready(link, line, self.now)
            case ("progress", received) if epoch == post.epoch and not post.paused:
                post.received = max(received, post.received)
                post.share.progress(received, self.now)
        self.send(post)

    # Epochs

    def pause(self, post: Post) -> None:
        post.paused = True
        post.parked.clear()
        for lane in post.lanes.values():
            lane.waiting.clear()

    def begin(self, luck: int) -> None:
        """A new epoch, behind what the far side has taken of the old one, led by anybody."""
        upto = self.received + luck % (self.without_a_gap() - self.received + 1)
        for number in range(1, upto + 1):
            origin, seq, _ = self.numbers[number]
            self.final[origin] = seq
        if not self.numbered:
            self.final = {origin: self.taken(origin) for origin in ORIGINS if self.taken(origin)}
        self.epoch += 1
        self.opening = False
        self.calm = True
        self.received = 0
        self.blocks, self.arrived, self.numbers, self.copies = [], set(), {}, {}
        for blocks in self.on_link.values():
            blocks.clear()
        self.leader = self.plan.fellows[luck % len(self.plan.fellows)]
        for post in self.posts.values():
            self.pause(post)
            if post.owner != self.leader:
                self.say(self.leader, post.owner, ("begin", dict(self.final)))
        self.begin_at(self.posts[self.leader], dict(self.final))

    def begin_at(self, post: Post, final: dict[int, int]) -> None:
        post.epoch = self.epoch
        post.paused = False
        post.received = 0
        post.outstanding.final = SlotMarks(final.items())
        waiting = list(post.outstanding.after(post.outstanding.final))
        post.share.begin(Start(waiting, post.came, sorted(post.links), post.owner == self.leader), self.now)
        for link in post.lines:
            self.offer(post, link)
        self.send(post)

    # Onto links

    def send(self, post: Post) -> None:
        """What a gateway does with what its share has placed, and with what was assigned to it."""
        for link, parcel in post.share.placed:
            self.check_placed(post, link, parcel)
            if link in post.lanes:
                post.lanes[link].waiting.append(parcel)
            else:
                assert post.owner == self.leader
                self.say(post.owner, self.plan.links[link].near, ("assign", link, parcel))
        post.share.placed.clear()
        for link, parcel in [each for each in post.parked if post.has(each[1].segment)]:
            post.parked.remove((link, parcel))
            if link in self.up:
                post.lanes[link].waiting.append(parcel)
        for link, lane in post.lanes.items():
            while lane.room and lane.waiting:
                parcel = lane.take()
                post.lines.pop(link, None)
                self.put(post, link, parcel)

    def check_placed(self, post: Post, link: LinkId, parcel: Parcel) -> None:
        assert not post.paused, "placed while paused"
        assert link in post.links, "placed on a link that does not work"
        origins = list(parcel.segment.marks)
        assert origins, "an empty parcel"
        for message in parcel.segment:
            assert message in self.messages, "not as it was delivered"
            assert message[1] > self.final.get(message[0], 0), "the far side had it when the epoch began"
        if self.numbered:
            # Out of a log a stripe that begins within the window is within it, though it may go in several parts.
            more = STRIPE - 1 if self.plan.share == "counted" else 0
            assert 1 <= parcel.first <= post.received + WINDOW + more, "begins beyond the window"
            for number, message in enumerate(parcel.segment, parcel.first):
                assert self.numbers.setdefault(number, message) == message, "a number stands for two messages"
        else:
            assert parcel.first == 0
        if self.plan.share == "counted":
            (stripe,) = {(number - 1) // STRIPE for number in range(parcel.first, parcel.last + 1)}
            assert link == way(self.everybody[stripe % len(self.everybody)], sorted(post.links))
        if self.plan.carriers:
            (own,) = {self.plan.carriers[origin] for origin in origins}
            assert link == way(own, sorted(post.links))
            assert parcel.home == self.plan.links[own].far
        else:
            assert parcel.home is None

    def put(self, post: Post, link: LinkId, block: Parcel) -> None:
        assert link in self.up, "put on a link that does not work"
        assert post.has(block.segment), "put on a link by somebody who has not delivered it"
        self.blocks.append((link, block))
        self.on_link[link].append(block)
        for number in range(block.first, block.last + 1):
            self.copies.setdefault(number, []).append(block)

    # The far side

    def arrives(self, block: Parcel) -> None:
        self.arrived.update(block.segment.ids())
        if self.numbered and block.last <= self.received:
            self.tell_all(("progress", self.received))

    def without_a_gap(self) -> int:
        """The highest number up to which all have arrived."""
        number = 0
        while (message := self.numbers.get(number + 1)) is not None and message[:2] in self.arrived:
            number += 1
        return number if self.numbered else 0

    def taken(self, origin: int) -> int:
        """The last message of an origin that the far side has delivered."""
        seq = self.final.get(origin, 0)
        if self.numbered:
            numbered = [self.numbers[number] for number in range(1, self.received + 1)]
            return max([seq, *(each for whose, each, _ in numbered if whose == origin)])
        while (origin, seq + 1) in self.arrived:
            seq += 1
        return seq

    # The end

    def come_to_an_end(self, seed: int) -> None:
        """Everything that can still happen does, in any order, but no new fault; then the promises are due."""
        if not self.up:
            self.happens(("up", seed % len(self.everybody)), 0)
        if self.opening:
            self.begin(seed)
        while rest := self.enabled(to_the_end=True):
            seed = (seed * 1_103_515_245 + 12_345) % (1 << 31)
            self.happens(rest[(seed >> 8) % len(rest)], seed >> 16)
        due = {(o, seq) for o, seq, _ in self.messages if o in ORIGINS and seq > self.final.get(o, 0)}
        assert self.arrived == due, "lost"
        if self.calm:
            sent = [each for _, block in self.blocks for each in block.segment.ids()]
            assert len(sent) == len(due), "sent twice without need"
        if self.numbered:
            assert sorted(self.numbers) == list(range(1, len(due) + 1)), "numbers have a gap"
            for origin in ORIGINS:
                in_order = [self.numbers[n][1] for n in sorted(self.numbers) if self.numbers[n][0] == origin]
                assert all(one + 1 == other for one, other in pairwise(in_order)), "an origin's order is not kept"
            self.check_causes()

    def check_causes(self) -> None:
        """Whichever copies the far side took: before each number it has been told of all that came in before it."""
        causes = self.posts[self.leader].causes
        for far in FAR_ORIGINS:
            told = 0
            for number in sorted(self.numbers):
                named = min(block.after.get(far, 0) for block in self.copies[number])
                told = max(told, named)
                assert told >= causes[self.numbers[number][:2]].get(far, 0), f"{number} does not wait for its causes"


drawn_messages = st.lists(
    st.tuples(
        st.sampled_from((*ORIGINS, *ORIGINS, *FAR_ORIGINS)), st.sampled_from([0, 1, 7, ROOM - 1, ROOM, ROOM + 1, 50])
    ),
    min_size=1,
    max_size=30,
).map(lambda drawn: [(o, [e for e, _ in drawn[: i + 1]].count(o), bytes(s)) for i, (o, s) in enumerate(drawn)])
layouts = st.sampled_from([(10,), (10, 11), (10, 11, 12), (10, 10), (10, 11, 10)])
choices = st.lists(st.integers(0, 1 << 16), max_size=100)


@pytest.mark.parametrize("kind", ["by-origin", "sets", "striped", "counted"])
@given(layouts, drawn_messages, choices)
def test_nothing_is_lost_and_numbers_are_given_once_whatever_links_do(
    kind: Kind, layout: tuple[int, ...], messages: list[Opened], choices: list[int]
) -> None:
    with small_bounds():
        side = Side(plan_of(kind, layout), messages)
        for choice in choices:
            enabled = side.enabled()
            side.happens(enabled[choice % len(enabled)], choice // len(enabled))
        side.come_to_an_end(sum(choices))
