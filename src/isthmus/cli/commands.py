"""Tables of commands whose modules are imported when they are called: what `isthmus` and `isthmus bench` are made of.

To list what there is, and to refuse what there is not, the table is enough; so both take a blink, however much a
command imports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

PLAIN: dict[str, Any] = {"add_completion": False, "pretty_exceptions_enable": False, "rich_markup_mode": None}
"""How every command line of ours is made: help is plain text, and an error that nobody expected a plain traceback."""


class Command(NamedTuple):
    """One command: under which heading it stands, its module in `isthmus.cli` and function there, what it does."""

    name: str
    heading: str
    where: str
    sentence: str

    def load(self) -> Any:
        module, _, function = self.where.partition(":")
        return getattr(import_module(f"isthmus.cli.{module}"), function)


class _Quick:
    """Has values that need little conversion converted here.

    Typer has every one converted by pydantic, even those that nobody gave, and to import that takes 0.1 s: as long as
    all the rest of a command that is refused. Lists are still typer's business.
    """

    def get_params(self, ctx: Any) -> Any:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in parameters:
            if "process_value" not in vars(each):
                each.process_value = _quick(each)
        return parameters


def _quick(parameter: Any) -> Callable[[Any, Any], Any]:
    by_typer, kind = parameter.process_value, parameter.type_descriptor.annotation
    several = parameter.multiple or parameter.nargs == -1
    convert = _conversion(parameter, kind)

    def process_value(ctx: Any, value: Any) -> Any:
        if value is None and not parameter.required:
            value = () if several else None
        elif not several and convert is not None and isinstance(value, str):
            try:
                value = convert(value)
            except ValueError as error:
                raise typer.BadParameter(str(error), ctx=ctx, param=parameter) from None
        elif several or not isinstance(kind, type) or not isinstance(value, kind):
            return by_typer(ctx, value)
        return value if parameter.callback is None else parameter.callback(ctx, parameter, value)

    return process_value


def _conversion(parameter: Any, kind: Any) -> Callable[[str], Any] | None:
    """What makes a value of a word, or says in a `ValueError` why it cannot; None where that is typer's business."""
    if kind is str:
        return str
    if kind is Path:
        return _path
    if kind in (int, float):
        return partial(_number, kind, parameter.min, parameter.max)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return partial(_choice, kind)
    return None


def _path(word: str) -> Path:
    """Nobody here reads or writes at an address: as a path it would be another place, or none."""
    from isthmus.trace.files import local_path  # only where a path is given

    return local_path(word)


def _choice(kind: type[StrEnum], word: str) -> StrEnum:
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"{word!r} is not one of {', '.join(repr(each.value) for each in kind)}.") from None


def _number(kind: type[int] | type[float], low: float | None, high: float | None, word: str) -> float:
    try:
        number = kind(word)
    except ValueError:
        raise ValueError(f"{word!r} is not a {'whole ' if kind is int else ''}number.") from None
    # Written so that nan, which is neither, is refused by either bound.
    if low is not None and not number >= low:
        raise ValueError(f"{word} is not at least {low}.")
    if high is not None and not number <= high:
        raise ValueError(f"{word} is not at most {high}.")
    return number


class _QuickCommand(_Quick, TyperCommand):
    pass


class CommandGroup(_Quick, TyperGroup):
    """The commands of `table`, in its order; those under one heading stand together."""

    table: ClassVar[Sequence[Command]] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        return [each.name for each in self.table]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        commands = {each.name: each for each in self.table}
        if cmd_name not in commands:
            ctx.fail(f"No such command {cmd_name!r}; there are {', '.join(commands)}")
        command = commands[cmd_name]
        found = self.called(command)
        if isinstance(found, typer.Typer):
            return get_command(found)
        alone = typer.Typer(**PLAIN)
        alone.command(command.name, cls=_QuickCommand)(found)
        return get_command(alone)

    def called(self, command: Command) -> Any:
        """The function whose parameters are the options of a command, or a group of further commands."""
        return command.load()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Whole sentences, on as many lines as they need."""
        longest = max(len(each.name) for each in self.table)
        for heading, commands in groupby(self.table, lambda each: each.heading):
            with formatter.section(heading):
                formatter.write_dl([(each.name.ljust(longest), each.sentence) for each in commands])
