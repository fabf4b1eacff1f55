"""The options of the source, checked before anything is read: what is wrong, and what would be right, in one line.

| option | meaning |
|---|---|
| `path` | a directory (or file) of logs, as a path or address; several as a JSON list of strings |
| `events` | which events become rows: `deliver` by default; `send` gives every message once; `*` for all |
| `roles` | `app` by default; `gateway`; `*` |
| `runs`, `systems`, `processes` | only rows of these; a process is `system/process`, or `process` in every system |
| `outside` | systems or processes (`system/process`) whose logs are not here: nobody waits for them; `*` for all |
| `patienceSeconds` | give up a log that has not grown for so long while others wait for it; without it, wait for ever |
| `maxRowsPerBatch` | at most so many rows in one micro-batch |
| `rowsPerPartition` | about so many rows for one task, 50,000 by default |
| `failOnDataLoss` | `true` (default): fail when rows of a log are lost for good; `false`: go on without them |
| `checkpointLocation` | that of the query: a journal there keeps offsets small, and restarts from reading again |

Filters choose rows, not causes: the cut is computed over all logs of the runs, whatever is left out of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from msgspec import Struct

from isthmus.trace.places import place
from isthmus.trace.schema import EVENTS, TraceError

ROWS_PER_PARTITION = 50_000
_ROLES = frozenset({"app", "gateway"})
_KNOWN = (
    "path",
    "paths",
    "events",
    "roles",
    "runs",
    "systems",
    "processes",
    "outside",
    "patienceSeconds",
    "maxRowsPerBatch",
    "rowsPerPartition",
    "failOnDataLoss",
    "checkpointLocation",
)


class SourceOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for. None stands for everything."""

    paths: tuple[str, ...]
    events: frozenset[str]
    roles: frozenset[str]
    runs: frozenset[str] | None
    systems: frozenset[str] | None
    processes: frozenset[str] | None
    outside: frozenset[str] | None
    patience: int | None
    max_rows: int | None
    rows_per_partition: int
    fail_on_data_loss: bool
    checkpoint: str | None

    def choice(self) -> str:
        """Which rows are asked for, as text: streams that differ in it have different cuts."""
        chosen = (self.events, self.roles, self.runs, self.systems, self.processes)
        return repr([None if names is None else sorted(names) for names in chosen])

    def wants(self, system: str, process: str) -> bool:
        if self.systems is not None and system not in self.systems:
            return False
        return self.processes is None or process in self.processes or f"{system}/{process}" in self.processes

    def is_outside(self, system: str, process: str) -> bool:
        return self.outside is None or system in self.outside or f"{system}/{process}" in self.outside


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Options as Spark hands them over: names in any case, all values text."""
    options = {key.lower(): value for key, value in given.items()}
    known = {each.lower() for each in _KNOWN}
    for key in options:
        if key not in known:
            raise _refused(key, "no such option", f"there are {', '.join(_KNOWN)}")
    paths = (*_paths(options.get("path", "")), *_paths(options.get("paths", "")))
    if not paths:
        raise _refused("path", "no path given", "use .load(DIRECTORY), or option path with a JSON list of directories")
    return SourceOptions(
        paths=tuple(str(place(path)) for path in paths),
        events=_some_of("events", options.get("events", "deliver"), EVENTS),
        roles=_some_of("roles", options.get("roles", "app"), _ROLES),
        runs=_names(options.get("runs")),
        systems=_names(options.get("systems")),
        processes=_names(options.get("processes")),
        outside=frozenset() if "outside" not in options else _names(options["outside"]),
        patience=_number("patienceSeconds", options.get("patienceseconds")),
        max_rows=_number("maxRowsPerBatch", options.get("maxrowsperbatch")),
        rows_per_partition=_number("rowsPerPartition", options.get("rowsperpartition")) or ROWS_PER_PARTITION,
        fail_on_data_loss=_truth("failOnDataLoss", options.get("failondataloss", "true")),
        checkpoint=str(place(options["checkpointlocation"])) if options.get("checkpointlocation") else None,
    )


def _paths(given: str) -> tuple[str, ...]:
    if not given.startswith("["):
        return (given,) if given else ()
    try:
        paths = json.loads(given)
    except ValueError:
        return (given,)  # a directory whose name begins with a bracket
    if not (isinstance(paths, list) and all(isinstance(path, str) and path for path in paths)):
        raise _refused("path", "not a list of directories", 'write it as ["first", "second"]')
    return tuple(paths)


def _names(given: str | None) -> frozenset[str] | None:
    if given is None or given.strip() == "*":
        return None
    return frozenset(name.strip() for name in given.split(",") if name.strip())


def _some_of(option: str, given: str, known: frozenset[str]) -> frozenset[str]:
    names = _names(given)
    if names is None:
        return known
    unknown = sorted(names - known)
    if unknown or not names:
        what = f"no such value: {', '.join(unknown)}" if unknown else "no value given"
        raise _refused(option, what, f"choose from {', '.join(sorted(known))}, or *")
    return names


def _number(option: str, given: str | None) -> int | None:
    if given is None:
        return None
    try:
        number = int(given)
    except ValueError:
        number = 0
    if number < 1:
        raise _refused(option, f"not a number to count with: {given}", "give a whole number from 1 on")
    return number


def _truth(option: str, given: str) -> bool:
    if given.strip().lower() not in ("true", "false"):
        raise _refused(option, f"neither true nor false: {given}", "give one of them")
    return given.strip().lower() == "true"


def _refused(option: str, reason: str, way_out: str) -> TraceError:
    return TraceError(f"option {option}", reason, way_out)
