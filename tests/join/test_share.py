"""Sharing messages among links: every message once, numbers without a gap, whatever happens in which order.

`Side` is the sending side of a join without its epochs' protocol: gateways with one share each, the words between
them in flight, links that become ready, a far side that says how far it is. Hypothesis decides what happens next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.core.codec import encode
from isthmus.core.segment import MAX_PAYLOAD, Opened, Segment
from isthmus.core.wire.join import Block, first_epoch
from isthmus.join import share
from isthmus.join.lane import Lane
from isthmus.join.outgoing import Outstanding
from isthmus.join.plan import JoinPlan, LinkEnd, Share
from isthmus.join.share import SHARES, route

ORIGINS = (0, 1, 2)
GATEWAYS = (10, 11, 12)
BLOCK_MESSAGES, BLOCK_BYTES, STRIPE, WINDOW = 4, 20, 3, 8


@contextmanager
def small_bounds() -> Iterator[None]:
    """Bounds that a short run meets, wherever a share keeps them."""
    with (
        patch.multiple(share, BLOCK_MESSAGES=BLOCK_MESSAGES, BLOCK_BYTES=BLOCK_BYTES, STRIPE=STRIPE, WINDOW=WINDOW),
        patch.object(share.Sequenced, "window", WINDOW, create=True),
        patch.object(share.Sequenced, "block_messages", BLOCK_MESSAGES, create=True),
        patch.object(share.Counted, "window", WINDOW, create=True),
        patch.object(share.Counted, "stripe", STRIPE, create=True),
    ):
        yield


def plan_of(kind: Share, gateways_of_links: Sequence[int]) -> JoinPlan:
    """Link i is one of the gateway `gateways_of_links[i]`; the origins are dealt to the links in turn."""
    links = tuple(LinkEnd(link, near, 20 + link) for link, near in enumerate(gateways_of_links))
    carriers = {origin: origin % len(links) for origin in ORIGINS} if kind in ("by-origin", "sets") else {}
    everybody = frozenset(ORIGINS)
    fellows = tuple(sorted(set(gateways_of_links)))
    return JoinPlan(0, kind, fellows, links, carriers, everybody, frozenset(), kind != "by-origin", True)


class Post:
    """One gateway's end of the driver: what its share has done lands here."""

    def __init__(self, side: Side, owner: int) -> None:
        self.side = side
        self.owner = owner
        self.outstanding = Outstanding()
        self.delivered: dict[int, int] = {}
        self.paused = False
        self.final: dict[int, int] = {}
        self.share = SHARES[side.plan.share](side.plan, self.outstanding, self)

    def is_mine(self, link: int) -> bool:
        return self.side.plan.links[link].near == self.owner

    def put(self, link: int, first: int, segment: Segment) -> None:
        """With `striped` the share waits for links itself. Otherwise a lane does; here links are always ready."""
        if self.side.plan.share == "striped":
            self.side.on_put(self, link, first, segment)
            return
        lane = Lane()
        lane.waiting.append((first, segment))
        while lane.waiting:
            lane.room = share.BLOCK_BYTES
            self.side.on_put(self, link, *lane.take())

    def assign(self, link: int, first: int, segment: Segment) -> None:
        assert self.owner == self.side.leader
        assert not self.is_mine(link)
        to = self.side.plan.links[link].near
        self.side.say(self.owner, to, ("assign", link, first, list(segment.runs())))

    def offer(self, link: int, room: int) -> None:
        assert self.is_mine(link)
        assert room in self.side.rooms[link], "not what the link said"
        self.side.say(self.owner, self.side.leader, ("free", link, room))


class Side:
    def __init__(self, plan: JoinPlan, messages: Sequence[Opened]) -> None:
        self.plan = plan
        self.messages = messages
        self.posts = {owner: Post(self, owner) for owner in plan.fellows}
        self.words: dict[tuple[int, int], deque[tuple[int, tuple]]] = {}  # type: ignore[type-arg]
        self.epoch = 0
        self.final: dict[int, int] = {}
        self.blocks: list[tuple[int, int, Segment]] = []
        self.idle = {end.link for end in plan.links}
        self.rooms: dict[int, set[int]] = {end.link: set() for end in plan.links}
        self.received = 0
        self.opening = True
        self.begin(0, 0)

    # What happens

    def enabled(self) -> list[tuple]:  # type: ignore[type-arg]
        one_order = self.plan.share == "counted"
        actions: list[tuple] = []  # type: ignore[type-arg]
        for owner, post in self.posts.items():
            seen = sum(post.delivered.values())
            if one_order and seen < len(self.messages):
                actions.append(("deliver", owner, self.messages[seen][0]))
            elif not one_order:
                actions += [("deliver", owner, origin) for origin in ORIGINS if self.next_of(post, origin) is not None]
        actions += [("ready", link) for link in sorted(self.idle)]
        actions += [("word", *pair) for pair, queue in self.words.items() if queue]
        if self.received < self.highest_without_a_gap():
            actions.append(("progress",))
        actions.append(("begin",) if self.opening else ("pause",))
        return actions

    def happens(self, action: tuple, luck: int) -> None:  # type: ignore[type-arg]
        match action:
            case ("deliver", owner, origin):
                self.deliver(self.posts[owner], origin, 1 + luck % 3)
            case ("ready", link):
                self.ready(link, (share.BLOCK_BYTES // 4, share.BLOCK_BYTES, 2 * share.BLOCK_BYTES)[luck % 3])
            case ("word", source, to):
                epoch, word = self.words[source, to].popleft()
                if epoch == self.epoch:
                    self.hear(self.posts[to], word)
            case ("progress",):
                self.received += 1 + luck % (self.highest_without_a_gap() - self.received)
                for post in self.posts.values():
                    if not post.paused:
                        post.share.progress(self.received)
            case ("pause",):
                self.opening = True
                self.words.clear()
                for post in self.posts.values():
                    post.paused = True
                    post.share.pause()
            case ("begin",):
                self.begin(luck, luck // 7)

    def ready(self, link: int, room: int = 0) -> None:
        room = room or share.BLOCK_BYTES
        self.idle.discard(link)
        self.rooms[link].add(room)
        self.posts[self.plan.links[link].near].share.ready(link, room)

    def next_of(self, post: Post, origin: int) -> Opened | None:
        seq = post.delivered.get(origin, 0) + 1
        return next((each for each in self.messages if each[:2] == (origin, seq)), None)

    def deliver(self, post: Post, origin: int, count: int) -> None:
        batch = []
        for _ in range(count):
            seen = sum(post.delivered.values())
            if self.plan.share == "counted":
                message = self.messages[seen] if seen < len(self.messages) else None
            else:
                message = self.next_of(post, origin)
            if message is not None:
                post.delivered[message[0]] = message[1]
                batch.append(message)
        fresh = post.outstanding.add(Segment.pack(batch)).beyond(post.final)
        if fresh and not post.paused:
            post.share.add(fresh)

    def say(self, source: int, to: int, word: tuple) -> None:  # type: ignore[type-arg]
        self.words.setdefault((source, to), deque()).append((self.epoch, word))

    def hear(self, post: Post, word: tuple) -> None:  # type: ignore[type-arg]
        match word:
            case ("assign", link, first, runs):
                post.share.assigned(link, first, runs)
            case ("free", link, room):
                assert post.owner == self.leader
                post.share.ready(link, room)
            case ("begin", final, links):
                self.begin_at(post, final, links)

    def begin(self, luck: int, more_luck: int) -> None:
        """A new epoch: behind some of what the old one carried, over some of the links, led by anybody."""
        carried = self.carried()[: luck % (len(self.carried()) + 1)] if self.blocks else []
        for origin, seq in carried:
            self.final[origin] = max(seq, self.final.get(origin, 0))
        self.epoch += 1
        self.opening = False
        self.blocks = []
        self.received = 0
        links = [end.link for end in self.plan.links]
        self.links = [link for link in links if more_luck >> link & 1] or links
        self.leader = self.plan.fellows[luck % len(self.plan.fellows)]
        for post in self.posts.values():
            if post.owner != self.leader:
                post.paused = True
                self.say(self.leader, post.owner, ("begin", dict(self.final), self.links))
        self.begin_at(self.posts[self.leader], dict(self.final), self.links)

    def begin_at(self, post: Post, final: dict[int, int], links: list[int]) -> None:
        post.paused = False
        post.final = final
        post.outstanding.final = final
        post.share.begin(list(post.outstanding.after(final)), links, post.owner == self.leader)
        post.share.progress(self.received)

    # What has been carried

    def carried(self) -> list[tuple[int, int]]:
        """A prefix of the numbering, or where there are no numbers, all: of each origin the messages are in order."""
        blocks = sorted(self.blocks, key=lambda block: block[1]) if self.plan.share != "by-origin" else self.blocks
        upto = self.highest_without_a_gap()
        return [
            (origin, seq)
            for _, first, segment in blocks
            for number, (origin, seq) in enumerate(segment.ids(), first)
            if number <= upto or self.plan.share == "by-origin"
        ]

    def highest_without_a_gap(self) -> int:
        if self.plan.share == "by-origin":
            return 0
        numbers = {first + index for _, first, segment in self.blocks for index in range(len(segment))}
        return next(number for number in range(1, len(numbers) + 2) if number not in numbers) - 1

    def on_put(self, post: Post, link: int, first: int, segment: Segment) -> None:
        assert not post.paused, "put on a link while paused"
        assert post.is_mine(link)
        assert link in self.links, "put on a link that does not work"
        assert link not in self.idle or self.plan.share != "striped", "put on a link that has not asked for it"
        messages = list(segment)
        assert len(messages) == sum(count for _, _, count in segment.runs()) > 0
        for message in messages:
            origin, seq, _ = message
            assert message in self.messages, "not as it was delivered"
            assert seq <= post.delivered[origin]
            assert seq > self.final.get(origin, 0), "carried again"
            assert self.plan.share in ("striped", "counted") or link == route(self.plan, self.links, origin)
        if self.plan.share == "by-origin":
            assert first == 0
        else:
            # A stripe that begins within the window goes out whole, though perhaps as several blocks.
            more = share.STRIPE - 1 if self.plan.share == "counted" else 0
            assert 1 <= first <= self.received + share.WINDOW + more, "begins beyond the window"
        self.check_size(link, first, messages)
        self.blocks.append((link, first, segment))
        self.idle.add(link)

    def check_size(self, link: int, first: int, messages: list[Opened]) -> None:
        sizes = [len(payload) for _, _, payload in messages]
        if self.plan.share == "counted":
            assert (first - 1) // share.STRIPE == (first + len(messages) - 2) // share.STRIPE, (
                "a block ends with its stripe"
            )
            assert link == self.links[(first - 1) // share.STRIPE % len(self.links)]
        room = max(self.rooms[link]) if self.plan.share == "striped" else share.BLOCK_BYTES
        assert len(messages) <= share.BLOCK_MESSAGES
        assert len(messages) == 1 or sum(sizes) <= room, "a block grows on although it is full"

    # The end

    def come_to_an_end(self, seed: int) -> None:
        """Everything that can still happen does, in any order, but no new epoch; then the promises are due."""
        if self.opening:
            self.begin(seed, seed)
        while rest := [action for action in self.enabled() if action != ("pause",)]:
            seed = (seed * 1_103_515_245 + 12_345) % (1 << 31)
            self.happens(rest[(seed >> 8) % len(rest)], seed >> 16)
        due = {(origin, seq) for origin, seq, _ in self.messages if seq > self.final.get(origin, 0)}
        carried = [each for _, _, segment in self.blocks for each in segment.ids()]
        assert len(carried) == len(set(carried)), "a message was carried twice in one epoch"
        assert set(carried) == due
        for link in self.links:
            mine = [block for block in self.blocks if block[0] == link]
            for origin in ORIGINS:
                in_order = [seq for _, _, segment in mine for whose, seq in segment.ids() if whose == origin]
                assert in_order == sorted(in_order), "FIFO order of an origin on a link"
            assert [first for _, first, _ in mine] == sorted(first for _, first, _ in mine)
        if self.plan.share == "by-origin":
            for origin in ORIGINS:
                assert len({link for link, _, segment in self.blocks if origin in segment.marks}) <= 1
        else:
            blocks = sorted(self.blocks, key=lambda block: block[1])
            assert [first for _, first, _ in blocks] == [
                1 + sum(len(segment) for _, _, segment in blocks[:index]) for index in range(len(blocks))
            ], "numbers have a gap, or are given twice"
            numbered = [each for _, _, segment in blocks for each in segment.ids()]
            for origin in ORIGINS:
                in_order = [seq for whose, seq in numbered if whose == origin]
                assert all(one + 1 == other for one, other in pairwise(in_order)), "an origin's order is not kept"


messages = st.lists(
    st.tuples(st.sampled_from(ORIGINS), st.sampled_from([0, 1, 7, 19, 20, 21, 50])), min_size=1, max_size=24
).map(lambda drawn: [(o, [e for e, _ in drawn[: i + 1]].count(o), bytes(s)) for i, (o, s) in enumerate(drawn)])
layouts = st.sampled_from([(10,), (10, 11), (10, 11, 12), (10, 10), (10, 11, 10)])
choices = st.lists(st.integers(0, 1 << 16), max_size=80)


@pytest.mark.parametrize("kind", ["by-origin", "sets", "striped", "counted"])
@given(layouts, messages, choices)
def test_every_message_goes_once_and_in_order(
    kind: Share, layout: tuple[int, ...], messages: list[Opened], choices: list[int]
) -> None:
    with small_bounds():
        side = Side(plan_of(kind, layout), messages)
        for choice in choices:
            enabled = side.enabled()
            side.happens(enabled[choice % len(enabled)], choice // len(enabled))
        side.come_to_an_end(sum(choices))


# Who carries what


def one_post(kind: Share, layout: tuple[int, ...], count: int, size: int = 1) -> tuple[Side, list[Opened]]:
    """The first gateway leads; `count` messages of origin 0 are there, and nobody has delivered any."""
    messages = [(0, seq, bytes(size)) for seq in range(1, count + 1)]
    return Side(plan_of(kind, layout), messages), messages


def test_the_sequencers_own_link_goes_first_and_costs_no_word() -> None:
    """parallel, 8.2: 6n - 2 messages inside the systems instead of 6n - 1 when the sequencer itself forwards."""
    side, _ = one_post("striped", (11, 10), 1)
    sequencer = side.posts[side.leader]
    side.happens(("word", 10, 11), 0)
    side.ready(0)
    side.happens(("word", 11, 10), 0)
    side.ready(1)
    side.words.clear()
    side.deliver(sequencer, 0, 1)
    assert [link for link, _, _ in side.blocks] == [1]
    assert not side.words


def test_an_idle_link_takes_what_there_is_and_a_busy_one_lets_it_gather() -> None:
    with small_bounds():
        side, _ = one_post("striped", (10,), 5)
        post = side.posts[10]
        side.ready(0)
        side.deliver(post, 0, 1)
        assert [len(block[2]) for block in side.blocks] == [1]
        side.deliver(post, 0, 3)
        assert len(side.blocks) == 1, "the link has not asked for more"
        side.ready(0)
        assert [len(block[2]) for block in side.blocks] == [1, 3]


def test_single_messages_gather_while_there_are_blocks_enough_under_way() -> None:
    with patch.object(share.Sequenced, "enough_blocks", 2):
        side, _ = one_post("striped", (10,), 40)
        post = side.posts[10]

        def blocks_after(deliveries: int) -> list[int]:
            for _ in range(deliveries):
                side.deliver(post, 0, 1)
                side.ready(0)
            return [len(block[2]) for block in side.blocks]

        assert blocks_after(2) == [1, 1]
        assert blocks_after(1) == [1, 1, 1], "it is half of the two under way"
        assert blocks_after(1) == [1, 1, 1], "one is less than half of three"
        assert blocks_after(1) == [1, 1, 1, 2]
        assert blocks_after(2) == [1, 1, 1, 2], "nor are two half of five"
        post.share.progress(1)
        assert blocks_after(0) == [1, 1, 1, 2, 2], "but they are of the four that are left"
        post.share.progress(5)
        assert blocks_after(1) == [1, 1, 1, 2, 2, 1], "one block is not enough"


def test_a_full_block_never_waits_for_the_far_side() -> None:
    with small_bounds(), patch.object(share.Sequenced, "enough_blocks", 1):
        side, _ = one_post("striped", (10,), WINDOW)
        post = side.posts[10]
        side.ready(0)
        side.deliver(post, 0, WINDOW)
        for _ in range(WINDOW):
            side.ready(0)
        assert [len(block[2]) for block in side.blocks] == [BLOCK_MESSAGES] * (WINDOW // BLOCK_MESSAGES)


def test_what_a_fellow_is_to_carry_waits_until_it_is_delivered_there() -> None:
    side, _ = one_post("striped", (10, 11), 4)
    sequencer, fellow = side.posts[10], side.posts[11]
    side.happens(("word", 10, 11), 0)
    side.ready(1)
    side.happens(("word", 11, 10), 0)
    side.deliver(sequencer, 0, 3)
    side.happens(("word", 10, 11), 0)
    side.deliver(fellow, 0, 2)
    assert side.blocks == [], "it has two of three"
    side.deliver(fellow, 0, 1)
    assert [(link, first, len(each)) for link, first, each in side.blocks] == [(1, 1, 3)]


def test_a_link_that_asked_once_is_given_one_block() -> None:
    side, _ = one_post("striped", (10, 11), 4)
    side.happens(("word", 10, 11), 0)
    side.ready(1)
    side.happens(("word", 11, 10), 0)
    side.deliver(side.posts[10], 0, 1)
    side.deliver(side.posts[10], 0, 1)
    assert [word for _, word in side.words[10, 11]] == [("assign", 1, 1, [(0, 1, 1)])]


def test_a_block_is_as_large_as_its_link_has_room() -> None:
    """The room of a fellow's link goes along with its word that it is ready."""
    side, _ = one_post("striped", (10, 11), 20, size=10)
    side.happens(("word", 10, 11), 0)
    side.ready(1, 40)
    assert [word for _, word in side.words[11, 10]] == [("free", 1, 40)]
    side.happens(("word", 11, 10), 0)
    side.deliver(side.posts[10], 0, 20)
    assert [word for _, word in side.words[10, 11]] == [("assign", 1, 1, [(0, 1, 4)])]
    side.ready(0, 70)
    side.ready(0, 5)
    assert [(link, first, len(block)) for link, first, block in side.blocks] == [(0, 5, 7), (0, 12, 1)]


@pytest.mark.parametrize("kind", ["striped", "sets", "counted"])
def test_the_window_closes_and_opens_again(kind: Share) -> None:
    with small_bounds():
        side, messages = one_post(kind, (10,), 4 * WINDOW)
        post = side.posts[10]
        for _ in messages:
            side.deliver(post, 0, 1)
            side.ready(0)
        under_way = sum(len(block[2]) for block in side.blocks)
        assert WINDOW <= under_way < WINDOW + BLOCK_MESSAGES
        side.received = WINDOW
        post.share.progress(WINDOW)
        for _ in messages:
            side.ready(0)
        more = sum(len(block[2]) for block in side.blocks)
        assert 2 * WINDOW <= more < 2 * WINDOW + BLOCK_MESSAGES


@pytest.mark.parametrize("kind", ["striped", "sets"])
def test_old_news_of_progress_does_not_close_the_window(kind: Share) -> None:
    with small_bounds():
        side, messages = one_post(kind, (10,), 2 * WINDOW)
        post = side.posts[10]
        side.received = WINDOW
        post.share.progress(WINDOW)
        post.share.progress(1)
        for _ in messages:
            side.deliver(post, 0, 1)
            side.ready(0)
        assert sum(len(block[2]) for block in side.blocks) == len(messages)


def test_the_messages_of_an_origin_go_by_its_own_link_while_that_works() -> None:
    plan = plan_of("by-origin", (10, 11, 12))
    assert [route(plan, (0, 1, 2), origin) for origin in ORIGINS] == [0, 1, 2]
    assert route(plan, (0, 2), 1) in (0, 2)
    assert [route(plan, (0, 2), origin) for origin in (0, 2)] == [0, 2], "nobody else is moved"
    assert route(plan, (), 1) is None
    assert route(plan, (0, 1, 2), 77) is None, "an origin that does not go out by this join"


def test_a_process_that_came_back_goes_by_the_link_of_its_place() -> None:
    plan = plan_of("by-origin", (10, 11, 12))
    assert route(plan, (0, 1, 2), 5 << 16 | 1) == 1


# Blocks


@pytest.mark.parametrize("kind", ["by-origin", "sets", "striped", "counted"])
def test_a_block_of_the_largest_messages_fits_a_frame(kind: Share) -> None:
    """What waits while an epoch is opened goes out at once; it must be possible to encode it."""
    side, messages = one_post(kind, (10,), 40, MAX_PAYLOAD)
    post = side.posts[10]
    side.happens(("pause",), 0)
    side.deliver(post, 0, len(messages))
    side.begin(0, 0)
    for _ in messages:
        side.ready(0)
    assert sum(len(block[2]) for block in side.blocks) == len(messages)
    for _, first, block in side.blocks:
        encode(Block(first_epoch(), first, block))
