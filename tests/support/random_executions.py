"""Small random executions of every kind, sound and broken, as the rows of a trace.

An execution first runs under a rule (causal, FIFO or no order at all; broadcast or multicast), then suffers a few
injuries (deliveries swapped, left out, repeated, invented or before their own send; processes that crash, leave or come
late), and at last its trace suffers losses: gaps, logs cut short, logs that are not there, rows that claim one place.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from isthmus.trace.schema import Event

Log = list[Event]
Logs = dict[str, Log]


def execution(random: Random, steps: int = 24) -> list[Event]:
    """The rows of one run of at most so many steps. Equal seeds give equal rows."""
    logs = sound_execution(random, steps)
    for _ in range(random.choice([0, 0, 1, 1, 2])):
        random.choice(INJURIES)(logs, random)
    number(logs)
    for _ in range(random.choice([0, 0, 0, 1, 2])):
        random.choice(LOSSES)(logs, random)
    events = [event for log in logs.values() for event in log]
    random.shuffle(events)
    return events


def number(logs: Logs) -> None:
    for log in logs.values():
        log[:] = [msgspec.structs.replace(row, index=index) for index, row in enumerate(log)]


def row(name: str, event: str, message: tuple[str, int] | None = None, **more: Any) -> Event:
    system, process = name.split("/")
    if message is not None:
        origin, seq = message
        origin_system, origin_process = origin.split("/")
        more |= {"origin_system": origin_system, "origin_process": origin_process, "origin_seq": seq}
    values = {"run": "r", "system": system, "process": process, "role": "app", "index": 0, "time_ns": 0} | more
    return Event(event=event, **values)  # type: ignore[arg-type]


def sound_execution(random: Random, steps: int) -> Logs:
    """Everybody sends and delivers at random, as far as the rule of this execution allows."""
    names = ["a/p1", "a/p2", "a/p3", "b/p1", "b/p2"][: random.randint(2, 5)]
    rule = random.choice(["causal", "causal", "causal", "fifo", "none"])
    multicast = random.random() < 0.4
    logs: Logs = {name: [row(name, "start")] for name in names}
    to: dict[tuple[str, int], tuple[str, ...] | None] = {}
    before: dict[tuple[str, int], set[tuple[str, int]]] = {}
    known: dict[str, set[tuple[str, int]]] = {name: set() for name in names}
    waiting: dict[str, list[tuple[str, int]]] = {name: [] for name in names}
    views = dict.fromkeys(names, 0)
    view_share = random.choice([0.0, 0.05, 0.3])

    def may_deliver(name: str, message: tuple[str, int]) -> bool:
        pending = waiting[name]
        if rule == "causal":
            return not any(other in before[message] for other in pending)
        return rule == "none" or not any(other[0] == message[0] and other[1] < message[1] for other in pending)

    def deliver(name: str) -> None:
        choices = [message for message in waiting[name] if may_deliver(name, message)]
        if choices:
            message = random.choice(choices)
            waiting[name].remove(message)
            known[name] |= before[message] | {message}
            logs[name].append(row(name, "deliver", message))

    for _ in range(random.randint(2, steps)):
        name = random.choice(names)
        action = random.random()
        if action < view_share:
            views[name] += 1
            logs[name].append(row(name, "view", peer=str(views[name]), destinations=tuple(names)))
        elif action < 0.4:
            message = (name, 1 + sum(1 for other in to if other[0] == name))
            to[message] = tuple(random.sample(names, random.randint(1, len(names)))) if multicast else None
            before[message] = set(known[name])
            known[name].add(message)
            logs[name].append(row(name, "send", message, destinations=to[message]))
            for other in to[message] or names:
                waiting[other].append(message)
        else:
            deliver(name)
    all_delivered = random.random() < 0.8
    for name in names:
        while all_delivered and waiting[name]:
            deliver(name)
        logs[name].append(row(name, "end"))
    return logs


# Injuries -------------------------------------------------------------------------------------------------------------


def pick(logs: Logs, random: Random) -> Log:
    return logs[random.choice(sorted(logs))]


def swap(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    if len(log) > 3:
        place = random.randrange(1, len(log) - 2)
        log[place], log[place + 1] = log[place + 1], log[place]


def move_a_delivery(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    places = [place for place, each in enumerate(log) if each.event == "deliver"]
    if places:
        log.insert(random.randrange(1, len(log)), log.pop(random.choice(places)))


def deliver_before_sending(logs: Logs, random: Random) -> None:
    """A process delivers a message of its own that it has not sent yet."""
    name = random.choice(sorted(logs))
    log = logs[name]
    sends = [place for place, each in enumerate(log) if each.event == "send"]
    if sends:
        place = random.choice(sends)
        origin_seq = log[place].origin_seq or 0
        others = [each for each in log if each.event != "deliver" or (each.origin_seq, name) != (origin_seq, _of(each))]
        log[:] = others if random.random() < 0.7 else log
        place = next(at for at, each in enumerate(log) if each.event == "send" and each.origin_seq == origin_seq)
        early = random.choice([place, random.randint(1, place)])
        log.insert(early, row(name, "deliver", (name, origin_seq)))


def _of(event: Event) -> str:
    return f"{event.origin_system}/{event.origin_process}"


def send_again(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    sends = [each for each in log if each.event == "send"]
    if sends:
        log.insert(random.randrange(1, len(log)), random.choice(sends))


def drop_a_delivery(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    places = [place for place, each in enumerate(log) if each.event == "deliver"]
    if places:
        log.pop(random.choice(places))


def drop_a_send(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    places = [place for place, each in enumerate(log) if each.event == "send"]
    if places:
        log.pop(random.choice(places))


def lose_rows(logs: Logs, random: Random) -> None:
    """A gap: the indices of the other rows stay."""
    log = pick(logs, random)
    if len(log) > 2:
        start = random.randrange(len(log) - 1)
        del log[start : min(start + random.randint(1, 3), len(log) - 1)]


def repeat_a_delivery(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    deliveries = [each for each in log if each.event == "deliver"]
    if deliveries:
        log.insert(random.randrange(1, len(log) + 1), random.choice(deliveries))


def invent_a_message(logs: Logs, random: Random) -> None:
    name = random.choice(sorted(logs))
    origin = random.choice([*sorted(logs), "c/p9"])
    destinations = random.choice([None, None, None, (name,), ("a/p1",)])
    invented = row(name, "deliver", (origin, random.choice([1, 2, 7, 99])), destinations=destinations)
    logs[name].insert(random.randrange(1, len(logs[name]) + 1), invented)


def cut(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    del log[random.randint(1, len(log)) :]


def stop(logs: Logs, random: Random) -> None:
    name = random.choice(sorted(logs))
    log = logs[name]
    del log[random.randint(1, len(log)) :]
    log.append(row(name, random.choice(["crash", "crash", "leave"])))


def come_late(logs: Logs, random: Random) -> None:
    """A process that joined: it has nothing of a first part of the run."""
    name = random.choice(sorted(logs))
    log = logs[name]
    skipped = random.randint(0, max(0, len(log) - 2))
    kept = [each for each in log[1 : skipped + 1] if each.event != "deliver" or random.random() < 0.1]
    log[: skipped + 1] = [row(name, "join"), *kept]


def record_a_row_twice(logs: Logs, random: Random) -> None:
    """The same row from two files: no harm."""
    log = pick(logs, random)
    log.append(random.choice(log))


def dispute_a_row(logs: Logs, random: Random) -> None:
    """Another row with the same index: nobody knows which is right.

    Some differ only in which column has a value and which is null.
    """
    log = pick(logs, random)
    place = random.randrange(len(log))
    values: list[dict[str, Any]] = [{"note": "x"}, {"peer": "x"}, {"destinations": ("x",)}, {"destinations": ()}]
    values += [{"payload_bytes": 7}, {"control_bytes": 7}, {"time_ns": 7}]
    kinds = random.sample(values, 2)
    log[place], other = (msgspec.structs.replace(log[place], **more) for more in kinds)
    log.append(other)


def lose_a_log(logs: Logs, random: Random) -> None:
    if len(logs) > 1:
        del logs[random.choice(sorted(logs))]


def become_a_gateway(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    log[:] = [msgspec.structs.replace(each, role="gateway") for each in log]


def address_to_some(logs: Logs, random: Random) -> None:
    log = pick(logs, random)
    places = [place for place, each in enumerate(log) if each.event in ("send", "deliver")]
    if places:
        place = random.choice(places)
        some = tuple(random.sample([*sorted(logs), "c/p9"], random.randint(0, len(logs))))
        log[place] = msgspec.structs.replace(log[place], destinations=some)


INJURIES: list[Callable[[Logs, Random], None]] = [
    swap,
    swap,
    move_a_delivery,
    move_a_delivery,
    deliver_before_sending,
    send_again,
    drop_a_delivery,
    drop_a_send,
    repeat_a_delivery,
    invent_a_message,
    stop,
    stop,
    come_late,
    come_late,
    become_a_gateway,
    address_to_some,
]
LOSSES: list[Callable[[Logs, Random], None]] = [
    lose_rows,
    lose_rows,
    cut,
    cut,
    lose_a_log,
    record_a_row_twice,
    dispute_a_row,
]
