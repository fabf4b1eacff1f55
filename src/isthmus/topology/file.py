"""A topology file from the disk: all of it or none, and never anything but a `TopologyError`.

Whatever is wrong with a file, its author gets lines that name the file, the key, the reason and the way out. This is
the one module of the package that touches the disk.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from isthmus.topology.check.rules import check
from isthmus.topology.model import Topology
from isthmus.topology.problem import Problem, Problems, TopologyError
from isthmus.topology.read.topology import read_topology

MAX_FILE_BYTES = 1 << 20
"""A topology of a thousand systems takes a tenth of this. More is a file that was named by mistake."""

_PLACE = re.compile(r" \(at (line \d+, column \d+|end of document)\)$")


def load(path: str | Path, allow_unsafe: bool = False) -> Topology:
    """The topology in a file. `allow_unsafe` is for those who want to see a topology fail: never for a real run."""
    file = str(path)
    try:
        if Path(path).exists() and not Path(path).is_file():
            raise _refusal(file, "", "is not a file", "name a topology file (TOML)")
        with Path(path).open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _refusal(file, "", "there is no such file", "check the name") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal(file, "", f"cannot be read: {reason}", "check the name and its permissions") from None
    if len(data) > MAX_FILE_BYTES:
        raise _refusal(file, "", f"is larger than {MAX_FILE_BYTES} bytes", "name a topology file (TOML)")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _refusal(file, f"line {line}", "is not UTF-8", "save the file as UTF-8") from None
    return parse(text, file, allow_unsafe)


def parse(text: str, file_name: str, allow_unsafe: bool = False) -> Topology:
    """The topology in a text; `file_name` is what problems are reported under.

    With `allow_unsafe`, a text that says `unsafe = true` may break the rules of the papers; `check` tells which.
    """
    document = _document(text, file_name)
    report = Problems(file_name)
    topology = read_topology(report, document)
    problems = report.problems + ([] if report.incomplete else check(topology))
    excused = {"warning", "protocol"} if allow_unsafe and topology.unsafe else {"warning"}
    if any(problem.kind not in excused for problem in problems):
        raise TopologyError([problem for problem in problems if problem.kind != "warning"])
    return _planned(topology)


def _planned(topology: Topology) -> Topology:
    """With an answer to every `links = "auto"`: what the load in `[simulation]` needs. Equal files, equal answers."""
    if all(join.links != "auto" for join in topology.joins):
        return topology
    from isthmus.planner.forecast import forecast, load_of

    forecasts = forecast(topology, load_of(topology)).joins
    joins = tuple(replace(join, planned=each.planned) for join, each in zip(topology.joins, forecasts, strict=True))
    return replace(topology, joins=joins)


def _document(text: str, file_name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise _refusal(file_name, "", "is nested too deeply", "write a flat file") from None
    except ValueError as error:
        # `TOMLDecodeError` is one of these; a number of thousands of digits raises another.
        message = str(error)
        place = _PLACE.search(message)
        where = "" if place is None else place[1]
        if where == "end of document":
            where = f"line {text.count(chr(10)) + 1}"
        reason = message.removesuffix(place[0]) if place else message
        raise _refusal(file_name, where, f"is not TOML: {reason}", "see https://toml.io") from None


def _refusal(file: str, key: str, reason: str, way_out: str) -> TopologyError:
    return TopologyError([Problem(file=file, key=key, reason=reason, way_out=way_out)])
