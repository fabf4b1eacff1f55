r"""Parser expressions of ShiViz: JavaScript's regular expressions with named groups, as Python can run them.

An expression comes from a file or a user, and neither is to be trusted, so everything is bounded: its length, how far
one search looks ahead (`WINDOW`), how long an entry may be (`MAX_ENTRY`), and the time that all searches in a file may
take together (`Patience`). Whoever writes `(a+)+b` gets an answer, not a job that hangs.

ShiViz runs its expressions with the flags `g` and `m`, and takes groups without a name for mere parentheses. What means
something else in Python is translated: `\d`, `\w` and `\b` are ASCII, `.` stops at every line end, `[^]` is anything,
`\A` is a letter and `{` is itself where it begins no count. What JavaScript does not know is refused, and so is `\1`:
ShiViz itself cannot say which group that is.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Sequence
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, NoReturn, Self

MAX_EXPRESSION = 4096
"""Characters of an expression."""

MAX_ENTRY = 1 << 18
"""Characters of one match."""

WINDOW = 2 * MAX_ENTRY
"""How far one search looks ahead. Backtracking may take 150 bytes per character of it."""

PARSER_GROUPS = ("host", "clock", "event")

_OPENING = re.compile(r"\((?:\?(?:[:=!]|<[=!]|<(?P<name>\w+)>))?", re.ASCII)
_COUNT = re.compile(r"\{[0-9]{1,9}(?:,[0-9]{0,9})?\}")
_CLASSES = {
    "d": "0-9",
    "D": r"\x00-/:-\U0010ffff",
    "w": "A-Za-z0-9_",
    "W": r"\x00-/:-@\[-\^`{-\U0010ffff",
    "s": r"\s",
    "S": r"\S",
}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_WORD = "[A-Za-z0-9_]"
_EDGES = {
    "b": f"(?:(?<={_WORD})(?!{_WORD})|(?<!{_WORD})(?={_WORD}))",
    "B": f"(?:(?<={_WORD})(?={_WORD})|(?<!{_WORD})(?!{_WORD}))",
}
_DOT = r"[^\n\r\u2028\u2029]"


class BadExpression(ValueError):
    """An expression that cannot be used, and why."""


class TooSlow(Exception):
    """The expression has used up the time that it may take."""


class Expression:
    """An expression, ready to run. `names` are its groups, in their order."""

    def __init__(self, source: str, needs: Sequence[str] = ()) -> None:
        self.source = source
        translation = _Translation(source)
        self.names: tuple[str, ...] = tuple(translation.names)
        missing = [name for name in needs if name not in self.names]
        if missing:
            raise BadExpression(f"it has no group (?<{missing[0]}>…)")
        try:
            self._pattern = re.compile(translation.python, re.MULTILINE)
        except (re.error, OverflowError, RecursionError) as error:
            raise BadExpression(f"not a regular expression: {error}") from None
        if self._pattern.match(""):
            raise BadExpression("it matches the empty text, so it says nothing about where an entry is")

    def fields(self, match: re.Match[str]) -> dict[str, str | None]:
        return dict(zip(self.names, match.groups(), strict=True))

    def matches(self, text: str, start: int, end: int, patience: Patience) -> Iterator[re.Match[str] | int]:
        """Everything that the expression finds between two places, and where something begins that is too long."""
        position = start
        while position < end:
            limit = min(position + WINDOW, end)
            match = patience.search(self._pattern, text, position, limit)
            if match is None:
                if limit == end:
                    return
                position += MAX_ENTRY  # what begins before that place would have been found
                continue
            begin, stop = match.span()
            if stop - begin > MAX_ENTRY:
                yield begin
                position = text.find("\n", begin, end) + 1 or end
            elif stop == limit < end and begin > position:
                position = begin  # it might go on behind the window: look again from where it begins
            else:
                if stop > begin:
                    yield match
                position = max(stop, begin + 1)


class Patience:
    """CPU time for the searches in one file. A search that is still running when it is used up is interrupted.

    In its block it takes the signal SIGVTALRM, which Python allows in the main thread only. Setting the timer costs
    a search 0.5 µs.
    """

    def __init__(self, seconds: float) -> None:
        if current_thread() is not main_thread():
            raise RuntimeError("searches can be interrupted in the main thread only")
        self.seconds = seconds
        self._left = seconds
        self._previous: Any = None
        self._entered = False

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGVTALRM, _interrupt)
        self._entered = True
        return self

    def __exit__(self, *reason: object) -> None:
        self._entered = False
        signal.signal(signal.SIGVTALRM, self._previous)

    def search(self, pattern: re.Pattern[str], text: str, start: int, end: int) -> re.Match[str] | None:
        assert self._entered, "outside of the block, the signal would end the process"
        if self._left <= 0:
            raise TooSlow
        signal.setitimer(signal.ITIMER_VIRTUAL, self._left)
        try:
            return pattern.search(text, start, end)
        finally:
            self._left = signal.setitimer(signal.ITIMER_VIRTUAL, 0)[0]  # 0 where it has run out


def _interrupt(signal_number: int, frame: FrameType | None) -> NoReturn:
    raise TooSlow


# JavaScript into Python -----------------------------------------------------------------------------------------------


class _Translation:
    """One pass over an expression. `python` is the result, `names` are the groups, which are numbered in Python."""

    def __init__(self, source: str) -> None:
        if len(source) > MAX_EXPRESSION:
            raise BadExpression(f"longer than {MAX_EXPRESSION} characters")
        self.source = source
        self.at = 0
        self.names: list[str] = []
        parts = []
        while self.at < len(source):
            parts.append(self._next())
        self.python = "".join(parts)

    def _next(self) -> str:
        character = self.source[self.at]
        if character == "(":
            return self._opening()
        if character == "[":
            return self._set()
        if character == "\\":
            return self._escape()
        if character in "*+?" or _COUNT.match(self.source, self.at):
            return self._repeat()
        self.at += 1
        if character == ".":
            return _DOT
        return character if character in ")|^$" else re.escape(character)

    def _opening(self) -> str:
        found = _OPENING.match(self.source, self.at)
        assert found is not None, "a parenthesis is what brought us here"
        if found.group() == "(" and self.source.startswith("(?", self.at):
            raise BadExpression(f"'{self.source[self.at : self.at + 4]}' is not known to JavaScript")
        self.at = found.end()
        name = found["name"]
        if name is None:
            return "(?:" if found.group() == "(" else found.group()
        if name in self.names:
            raise BadExpression(f"two groups are called '{name}'")
        self.names.append(name)
        return "("

    def _repeat(self) -> str:
        """A repetition, and `?` behind it. Whatever else repeats it again, such as Python's `a++`, is refused."""
        found = _COUNT.match(self.source, self.at)
        text = found.group() if found else self.source[self.at]
        self.at += len(text)
        if self.source.startswith("?", self.at):
            text += "?"
            self.at += 1
        if self.source[self.at : self.at + 1] in ("*", "+", "?") or _COUNT.match(self.source, self.at):
            raise BadExpression(f"'{self.source[self.at]}' behind '{text}' has nothing to repeat")
        return text

    def _escape(self) -> str:
        following = self.source[self.at + 1 : self.at + 2]
        if following in _EDGES:
            self.at += 2
            return _EDGES[following]
        if following in _CLASSES:
            self.at += 2
            return f"[{_CLASSES[following]}]"
        if following == "k" or following in tuple("123456789"):
            raise BadExpression(f"'\\{following}' refers to another group, which ShiViz does not know")
        return re.escape(self._character())

    def _character(self) -> str:
        """The one character that stands at this place, written as it is or escaped."""
        source, at = self.source, self.at
        if source[at] != "\\":
            self.at += 1
            return source[at]
        if at + 1 == len(source):
            raise BadExpression("it ends with a backslash")
        kind = source[at + 1]
        for letter, digits in (("x", 2), ("u", 4)):
            code = source[at + 2 : at + 2 + digits]
            if kind == letter and re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", code):
                self.at += 2 + digits
                return chr(int(code, 16))
        if kind == "c" and source[at + 2 : at + 3].isalpha() and source[at + 2].isascii():
            self.at += 3
            return chr(ord(source[at + 2]) % 32)
        self.at += 2
        return _CONTROLS.get(kind, kind)

    def _set(self) -> str:
        """A set in brackets. Every member is written anew, so that none of Python's own signs is left in it."""
        self.at += 1
        negated = self.source.startswith("^", self.at)
        self.at += negated
        members = []
        while True:
            if self.at >= len(self.source):
                raise BadExpression("a '[' has no ']'")
            if self.source[self.at] == "]":
                self.at += 1
                break
            members.append(self._member())
        if not members:
            return r"[\s\S]" if negated else "(?!)"
        return f"[{'^' if negated else ''}{''.join(members)}]"

    def _member(self) -> str:
        first = self._class_or_character()
        dash = self.source[self.at : self.at + 1] == "-" and self.source[self.at + 1 : self.at + 2] not in ("", "]")
        if not dash or len(first) > 1:
            return first if len(first) > 1 else re.escape(first)
        self.at += 1
        last = self._class_or_character()
        if len(last) > 1:
            return rf"{re.escape(first)}\-{last}"
        if last < first:
            raise BadExpression(f"the range {first}-{last} is out of order")
        return f"{re.escape(first)}-{re.escape(last)}"

    def _class_or_character(self) -> str:
        if self.source[self.at] == "\\":
            following = self.source[self.at + 1 : self.at + 2]
            if following in _CLASSES:
                self.at += 2
                return _CLASSES[following]
            if following == "b":
                self.at += 2
                return "\b"
        return self._character()
