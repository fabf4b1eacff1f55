"""A mapping file: what is allowed in it, checked before Spark starts. No Spark is imported here.

    complete = true                     # nothing is missing from any log

    [[input]]
    from = "warehouse.orders"           # a table of the catalogue or a path; --table says another
    [input.columns]                     # SQL expressions, one per column of a trace
    process = "client"
    order = "offset"
    event = "kind"
    message = "order_id"
    [input.events]                      # what the words of `event` mean
    placed = "send"
    seen = "deliver"

Every key is said in docs/pipeline.md, "Your own tables and logs". Expressions are as much to be trusted as a query of
SQL: they are run by Spark with the rights of whoever runs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from isthmus.trace.columns import TRACE_COLUMNS
from isthmus.trace.schema import COLUMNS, EVENTS, TraceError

TEMPLATES = Path(__file__).with_name("templates")
IGNORE = "ignore"
"""What an event is mapped to that is of no concern."""

REASON = "isthmus_reason"
"""A column of mapped rows: why a row does not count, or null."""

ORIGIN = ("origin_system", "origin_process", "origin_seq")
DEFAULTS = {"run": "'run'", "system": "'system'", "role": "'app'", "time_ns": "0"}
LINE_COLUMNS = ("file", "name", "line", "text")
"""What a line of a text log has beside the groups of its pattern."""

MAX_PATTERN = 4096
_MAX_FILE = 1 << 20
_NEEDED = ("process", "event")
WAY_OUT = 'see "Your own tables and logs" in docs/pipeline.md'


class Input(Struct, kw_only=True, forbid_unknown_fields=True):
    """One table, or text logs, and how its rows become rows of a trace."""

    name: str = ""
    """By which `--table NAME=…` gives it. Inputs of one name read the same table."""
    source: str = field(default="", name="from")
    format: str = ""
    options: dict[str, str | int | bool] = {}
    pattern: str = ""
    """Of text: a regular expression of Python with named groups, for one line."""
    unmatched: Literal["quarantine", "ignore"] = "quarantine"
    where: str = ""
    columns: dict[str, str | list[str]]
    events: dict[str, str] = {}
    complete: bool | None = None

    @property
    def order(self) -> list[str]:
        given = self.columns.get("order", [])
        return [given] if isinstance(given, str) else given

    @property
    def expressions(self) -> dict[str, str]:
        """Column of a trace, or `message`, to what computes it."""
        return DEFAULTS | {name: text for name, text in self.columns.items() if isinstance(text, str)}

    @property
    def numbered(self) -> bool:
        """Its rows say their index themselves."""
        return "index" in self.columns


class Mapping(Struct, kw_only=True, forbid_unknown_fields=True):
    """A whole mapping. `label` is how it is called where something is wrong with it."""

    inputs: list[Input] = field(name="input")
    complete: bool = False
    senders_only: bool = False
    """A process that delivers nothing only sends: no message is for it."""
    label: str = "mapping"

    @property
    def numbered(self) -> bool:
        return self.inputs[0].numbered

    @property
    def by_message(self) -> bool:
        """Messages have ids of their own, and their senders' numbers are counted."""
        return any("message" in each.columns for each in self.inputs)

    def is_complete(self, one: Input) -> bool:
        return self.complete if one.complete is None else one.complete

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(each.name for each in self.inputs))


def templates() -> list[str]:
    return sorted(file.stem for file in TEMPLATES.glob("*.toml"))


def load_mapping(path: str | Path) -> Mapping:
    """Read a mapping file, or a template by its name. `TraceError` where something is wrong with it."""
    file = Path(path)
    if not file.exists() and str(path) in templates():
        file = TEMPLATES / f"{path}.toml"
    try:
        content = file.read_bytes()
    except OSError as error:
        reason = f"cannot read: {error.strerror or error}"
        raise TraceError(path, reason, f"give a mapping file, or a template: {', '.join(templates())}") from error
    if len(content) > _MAX_FILE:
        raise TraceError(path, f"longer than {_MAX_FILE} bytes", "give a mapping file")
    return parse_mapping(content, str(path))


def parse_mapping(content: bytes | str, label: str) -> Mapping:
    try:
        mapping = msgspec.toml.decode(content, type=Mapping)
    except (ValueError, RecursionError) as error:
        raise TraceError(label, f"not a mapping: {error}", WAY_OUT) from None
    mapping.label = label
    return checked(mapping)


def checked(mapping: Mapping) -> Mapping:
    """The same mapping, if it is one that can be used."""
    if not mapping.inputs:
        raise TraceError(mapping.label, "it has no [[input]]", WAY_OUT)
    for number, one in enumerate(mapping.inputs, 1):
        place = f"{mapping.label}, input {one.name or number}"
        if one.pattern:
            _check_pattern(place, one)
            if not (one.order or one.numbered):
                one.columns["order"] = ["file", "line"]
        for reason in _problems(one):
            raise TraceError(place, reason, WAY_OUT)
    if len({one.numbered for one in mapping.inputs}) > 1:
        raise TraceError(mapping.label, "some inputs have `index` and others `order`", "choose one of them for all")
    if len({"message" in one.columns for one in mapping.inputs}) > 1:
        raise TraceError(mapping.label, "some inputs have `message` and others do not", "choose one way for all")
    return mapping


def identity(columns: Iterable[str], label: str) -> Mapping:
    """The mapping of a table that has the columns of a trace already."""
    there = {name: f"`{name}`" for name in columns if name in COLUMNS}
    missing = [each.name for each in TRACE_COLUMNS if not each.nullable and each.name not in there]
    if missing:
        way_out = "give a mapping that says what its columns mean"
        raise TraceError(label, f"not a trace: it has no column `{missing[0]}`", way_out)
    return Mapping(inputs=[Input(columns=dict(there))], label=label)


def _problems(one: Input) -> Iterable[str]:
    known = (*COLUMNS, "order", "message")
    for name, text in one.columns.items():
        if name not in known:
            yield f"no such column: `{name}`; there are {', '.join(known)}"
        if isinstance(text, list) and name != "order":
            yield f"`{name}` is a list; only `order` may be one"
        if not text or not all(each.strip() for each in ([text] if isinstance(text, str) else text)):
            yield f"`{name}` is empty; give a column or an expression of SQL"
    for name in _NEEDED:
        if name not in one.columns:
            yield f"no `{name}` in [input.columns]"
    if one.numbered == bool(one.order):
        yield "it needs one of `order`, what sorts the rows of a process, and `index`, their place from 0 on"
    own = [name for name in ORIGIN if name in one.columns]
    if "message" in one.columns:
        if own:
            yield f"it has both `message` and `{own[0]}`; a message is known by one of them"
    elif "origin_process" not in own or "origin_seq" not in own:
        yield "it does not say which message: give `message`, or `origin_process` and `origin_seq`"
    for word, event in one.events.items():
        if event not in EVENTS and event != IGNORE:
            yield f"'{word}' is mapped to '{event}'; there are {', '.join(sorted(EVENTS))} and {IGNORE}"
    if one.pattern and (one.format or one.options):
        yield "it has both `pattern`, for lines of text, and `format` or `options`, for tables"
    if not one.pattern and one.unmatched == "ignore":
        yield "`unmatched` is for text, and there is no `pattern`"


def _check_pattern(place: str, one: Input) -> None:
    way_out = "give a regular expression of Python with named groups, as in (?P<process>\\S+) got (?P<message>\\S+)"
    if len(one.pattern) > MAX_PATTERN:
        raise TraceError(place, f"its pattern is longer than {MAX_PATTERN} characters", way_out)
    try:
        names = re.compile(one.pattern).groupindex
    except (re.error, OverflowError, RecursionError) as error:
        raise TraceError(place, f"its pattern is no regular expression: {error}", way_out) from None
    taken = [name for name in names if name in LINE_COLUMNS]
    if taken:
        raise TraceError(place, f"its pattern has a group `{taken[0]}`, which a line has already", "rename the group")
    if not names:
        raise TraceError(place, "its pattern has no named group", way_out)
