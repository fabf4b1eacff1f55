"""Traces for tests of the pipeline: many runs in few files, and large ones made by rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from random import Random

import msgspec
from random_executions import execution, row

from isthmus.trace.schema import Event


def write_jsonl(path: Path, events: Iterable[Event]) -> Path:
    path.write_bytes(msgspec.json.Encoder().encode_lines(list(events)))
    return path


def executions(seeds: Iterable[int], steps: int = 24) -> dict[str, list[Event]]:
    """Random executions, sound and broken, as runs of one trace: run `x7` is the execution of seed 7."""
    return {
        f"x{seed}": [msgspec.structs.replace(event, run=f"x{seed}") for event in execution(Random(seed), steps)]
        for seed in seeds
    }


def rounds(run: str, processes: int, messages: int, seed: int = 1) -> dict[str, list[Event]]:
    """A causal broadcast without a flaw: in every round each sends one message, then delivers all of the round.

    Rounds are delivered in a random order, but one of them, `p0`, comes first everywhere: it is a cause of nothing in
    its own round, and of everything in the next.
    """
    random = Random(seed)
    names = [f"a/p{number}" for number in range(processes)]
    logs: dict[str, list[Event]] = {}
    for name in names:
        log = [row(name, "start")]
        for number in range(1, messages + 1):
            log.append(row(name, "send", (name, number)))
            others = names[1:]
            random.shuffle(others)
            log += [row(name, "deliver", (other, number)) for other in [names[0], *others]]
        logs[name] = [*log, row(name, "end")]
    return {name: numbered(run, log) for name, log in logs.items()}


def numbered(run: str, log: Sequence[Event]) -> list[Event]:
    return [msgspec.structs.replace(event, run=run, index=index) for index, event in enumerate(log)]


def all_rows(logs: dict[str, list[Event]]) -> list[Event]:
    return [event for log in logs.values() for event in log]
