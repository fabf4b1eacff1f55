r"""The text of a ShiViz log, cut into executions and entries.

A file that is made to be uploaded has the parser expression on its first line and the delimiter of executions, or
nothing, on its second. Other files are the log alone, and the expressions come from whoever reads it.

Everything between two entries is of no interest to ShiViz. Here it is counted: a stretch of lines that holds no part of
any entry is one finding, with its first line and the number of its lines. So is an entry whose clock is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from isthmus.trace.shiviz.expression import MAX_ENTRY, PARSER_GROUPS, BadExpression, Expression, Patience, TooSlow

DEFAULT_PARSER = r"(?<event>.*)\n(?<host>\S*) (?<clock>{.*})"
"""What ShiViz takes where a file leaves its first line empty."""

MAX_FILE = 256 << 20
"""Bytes of a log. It is read as a whole, because an entry may be about any other."""

SECONDS = 10.0
SECONDS_PER_MEGABYTE = 1.0
"""CPU time for the searches in one file. Sound expressions take some 10 µs per entry, that is 0.1 s per megabyte."""

MAX_CLOCK = 1 << 62

Bad: TypeAlias = list[tuple[int, str]]
"""Lines, from 1, and what is wrong there. Line 0 stands for the whole file."""

_clock_decoder = msgspec.json.Decoder(dict[str, int])


class Expressions(Struct, frozen=True):
    """How to read logs that do not say it themselves: the parser, and the delimiter of executions or nothing."""

    parser: str = ""
    delimiter: str = ""

    def check(self) -> None:
        """Raises `BadExpression` with the name of the option that is wrong."""
        for option, text, needs in (("--shiviz", self.parser, PARSER_GROUPS), ("--delimiter", self.delimiter, ())):
            try:
                if text:
                    Expression(text, needs)
            except BadExpression as error:
                raise BadExpression(f"{option}: {error}") from None


class Entry(Struct, frozen=True):
    """One event of a log. `own` is the clock of its own host, `clock` that of all others."""

    line: int
    host: str
    own: int
    clock: dict[str, int]
    text: str
    fields: dict[str, str | None]


class Execution(NamedTuple):
    """Part of a log. The first has no label where the log does not begin with a delimiter.

    Entries come as they are read, and have to be taken before the next execution is.
    """

    number: int
    label: str | None
    entries: Iterator[Entry]


def is_parser(line: str) -> bool:
    """Whether a line is meant as a parser expression, sound or not."""
    return all(f"(?<{name}>" in line for name in PARSER_GROUPS)


def read_log(content: bytes, given: Expressions, bad: Bad) -> Iterator[Execution]:
    """The executions of a log. What is wrong with it goes to `bad`; whatever the bytes, no exception."""
    try:
        log = _Log(content, given, bad)
    except BadExpression as error:
        bad.append((1, f"its expressions cannot be used: {error}"))
        return
    with log.patience:
        yield from log.executions()


class _Log:
    """One log on its way: the text, where its lines are, and the patience that is left for it."""

    def __init__(self, content: bytes, given: Expressions, bad: Bad) -> None:
        # As the text box of a browser does it. Bytes that are not UTF-8 stay visible as lone surrogates.
        text = content.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        self.text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
        self.bad = bad
        self.patience = Patience(SECONDS + SECONDS_PER_MEGABYTE * len(content) / 1e6)
        self.gave_up = False
        self._line = 1
        self._line_at = 0
        first, _, rest = self.text.partition("\n")
        second = rest.partition("\n")[0]
        self.start = 0
        parser, delimiter = given.parser, given.delimiter
        if is_parser(first) or not (parser or first.strip()):
            parser, delimiter = first.strip() or DEFAULT_PARSER, second.strip() or delimiter
            self.start = min(len(first) + len(second) + 2, len(self.text))
        if not parser:
            raise BadExpression("its first line is no parser expression, and none was given; give --shiviz EXPRESSION")
        self.parser = Expression(parser, PARSER_GROUPS)
        self.delimiter = Expression(delimiter) if delimiter.strip() else None

    def line_of(self, position: int) -> int:
        """Positions have to come in order, or nearly so: lines are counted from the last one on."""
        if position < self._line_at:
            self._line, self._line_at = 1, 0
        self._line += self.text.count("\n", self._line_at, position)
        self._line_at = position
        return self._line

    def executions(self) -> Iterator[Execution]:
        seen: set[str | None] = set()
        for number, (label, start, end) in enumerate(self._parts(), 1):
            if label is not None and label in seen:
                self.bad.append((self.line_of(start), f"a second execution called '{label}': names must be unique"))
                continue
            seen.add(label)
            yield Execution(number, label, self._entries(start, end))
            if self.gave_up:
                return

    def _give_up(self, line: int, what: str) -> None:
        self.gave_up = True
        seconds = self.patience.seconds
        self.bad.append(
            (line, f"the {what} expression has taken {seconds:.0f} s by here, so nothing behind is read: simplify it")
        )

    def _parts(self) -> list[tuple[str | None, int, int]]:
        """Label, begin and end of each execution that is not blank."""
        parts: list[tuple[str | None, int, int]] = []
        label: str | None = None
        start = self.start
        try:
            for match in self._delimiters():
                parts.append((label, start, match.start()))
                fields = self.delimiter.fields(match) if self.delimiter else {}
                label, start = fields.get("trace"), match.end()
        except TooSlow:
            self._give_up(self.line_of(start), "delimiter")
            return []
        parts.append((label, start, len(self.text)))
        return [part for part in parts if not self.text[part[1] : part[2]].isspace() and part[1] < part[2]]

    def _delimiters(self) -> Iterator[re.Match[str]]:
        if self.delimiter is not None:
            for match in self.delimiter.matches(self.text, self.start, len(self.text), self.patience):
                if not isinstance(match, int):
                    yield match

    def _entries(self, start: int, end: int) -> Iterator[Entry]:
        position = start
        try:
            for match in self.parser.matches(self.text, start, end, self.patience):
                begin = match if isinstance(match, int) else match.start()
                self._skipped(position, begin)
                if isinstance(match, int):
                    self.bad.append((self.line_of(begin), f"an entry longer than {MAX_ENTRY} characters"))
                    position = self.text.find("\n", begin, end) + 1 or end
                    continue
                position = match.end()
                entry = self._entry(match)
                if entry is not None:
                    yield entry
        except TooSlow:
            self._give_up(self.line_of(position), "parser")
        else:
            self._skipped(position, end)

    def _skipped(self, start: int, end: int) -> None:
        """Report whole lines without any part of an entry: what stands around an entry on its own lines is not one."""
        text = self.text
        if start > self.start and text[start - 1] != "\n":
            start = text.find("\n", start, end) + 1 or end
        if end < len(text) and text[end - 1 : end] != "\n":
            end = text.rfind("\n", start, end) + 1 or start
        between = text[start:end]
        if not between or between.isspace():
            return
        first = start + len(between) - len(between.lstrip())
        lines = between.strip().count("\n") + 1
        what = "a line" if lines == 1 else f"{lines} lines"
        self.bad.append((self.line_of(first), f"{what} in which the parser expression finds no entry"))

    def _entry(self, match: re.Match[str]) -> Entry | None:
        line = self.line_of(match.start())
        fields = self.parser.fields(match)
        host, clock, text = (fields.pop(name) or "" for name in PARSER_GROUPS)
        reason = _not_text(match.group()) or (None if host else "the host has no name")
        found: dict[str, int] = {}
        if reason is None:
            try:
                found = _clock(clock)
            except (ValueError, RecursionError) as error:
                reason = f"the clock is not a JSON object of whole numbers: {error}"
            else:
                reason = _not_a_clock(found, host)
        if reason is not None:
            self.bad.append((line, reason))
            return None
        own = found.pop(host)
        return Entry(line, host, own, {other: time for other, time in found.items() if time}, text, fields)


def _not_text(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return "not UTF-8"
    return None


def _clock(text: str) -> dict[str, int]:
    try:
        return _clock_decoder.decode(text)
    except (ValueError, RecursionError):
        if '\\"' in text:  # printed as a string inside of another language, as the model checker TLC does
            return _clock_decoder.decode(text.replace('\\"', '"'))
        raise


def _not_a_clock(clock: dict[str, int], host: str) -> str | None:
    if host not in clock:
        return f"the clock has no entry for its own host '{host}'"
    if clock[host] < 1:
        return f"the clock of host '{host}' is {clock[host]}, but clocks begin at 1"
    highest = max(clock, key=clock.__getitem__)
    if clock[highest] > MAX_CLOCK:
        return f"the clock of '{highest}' is {clock[highest]}, more than {MAX_CLOCK}"
    lowest = min(clock, key=clock.__getitem__)
    if clock[lowest] < 0:
        return f"the clock of '{lowest}' is {clock[lowest]}, but clocks begin at 1"
    return None
