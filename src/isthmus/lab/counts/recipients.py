"""What it costs to send only to recipients inside a local group (daisy, Sect. 3.4, the second optimisation).

Counted as in `daisies.py`, beside the same message in the same daisy whose local groups send to everybody. A
message has to be held by k members besides its sender, so it goes to max(r, k) of them for r recipients.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from isthmus.hierarchy.daisy.options import DaisyOptions
from isthmus.lab.counts.daisies import FAST, SITES, DaisyRig, MessageCost, even_daisy
from isthmus.lab.counts.table import CountRow, Section, row
from isthmus.ordering.group.window import GroupSettings
from isthmus.planner.expressions import PARTS

SIZES = (4, 8, 16)
SETTINGS = ((1, 1), (1, 2), (3, 1), (3, 2))
"""(r, k): recipients beside the sender, and how many members besides it have to hold a message."""

GROUPS = SITES * PARTS


def _rig(size: int, groups: int, resilience: int, settings: GroupSettings) -> DaisyRig:
    """A daisy to count on; without resilience it sends to everybody in a group."""
    inside = DaisyOptions(inside="recipients", resilience=resilience) if resilience else DaisyOptions()
    table = even_daisy(groups * size, groups, 2) if groups > 1 else even_daisy(size, 1, 1)
    return DaisyRig(structs.replace(table, options=inside), settings)


def inside(size: int, recipients: int, resilience: int, settings: GroupSettings = FAST) -> MessageCost:
    """One message in a single group, from its last member to the first ones."""
    return _rig(size, 1, resilience, settings).send(size - 1, range(recipients))


def across(size: int, resilience: int) -> MessageCost:
    """One message from the last member of the first of six groups to the last of all: neither is a server."""
    return _rig(size, GROUPS, resilience, FAST).send(size - 1, (GROUPS * size - 1,))


def _each() -> Iterator[tuple[int, int, int, str]]:
    for size in SIZES:
        for recipients, resilience in SETTINGS:
            yield size, recipients, resilience, f"m = {size}, r = {recipients}, k = {resilience}"


def count_copies() -> list[CountRow]:
    rows = []
    for size, recipients, resilience, setting in _each():
        copies = len(inside(size, recipients, resilience).lines)
        rows.append(row(setting, "messages", max(recipients, resilience), [copies]))
    for size in SIZES:
        setting = f"m = {size}, everybody"
        rows.append(row(setting, "messages", size - 1, [len(inside(size, 1, 0).lines)]))
        setting = f"{setting}, to another group"
        rows.append(row(setting, "messages", 2 * (size - 1) + GROUPS - 1, [len(across(size, 0).lines)]))
        for resilience in (1, 2):
            setting = f"m = {size}, k = {resilience}, to another group"
            rows.append(row(setting, "messages", 2 * resilience + GROUPS - 1, [len(across(size, resilience).lines)]))
    return rows


def count_words() -> list[CountRow]:
    """With uniform delivery, which is what resilience has to be compared with: a quorum holds it first."""
    uniform = structs.replace(FAST, uniform=True)
    rows = []
    for size, recipients, resilience, setting in _each():
        words = inside(size, recipients, resilience, uniform).words
        rows.append(row(setting, "messages", (2 if resilience == 1 else 4) * max(recipients, resilience), [words]))
    for size in SIZES:
        words = inside(size, 1, 0, uniform).words
        rows.append(row(f"m = {size}, everybody", "messages", 3 * (size - 1), [words]))
    return rows


def count_entries() -> list[CountRow]:
    rows = []
    for size, recipients, resilience, setting in _each():
        headers = inside(size, recipients, resilience).headers.values()
        rows.append(row(setting, "entries", size**2, [each.entries for each in headers]))
    for size in SIZES:
        headers = inside(size, 1, 0).headers.values()
        rows.append(row(f"m = {size}, everybody", "entries", size, [each.entries for each in headers]))
    return rows


def size_of_header(size: int, resilience: int) -> int:
    """Bytes of one copy without payload."""
    (header,) = inside(size, 1, resilience).headers.values()
    return header.size


def count_bytes() -> list[CountRow]:
    """A number takes one byte in an idle system, so headers differ by m² − m, and by the frame around a parcel."""
    rows = []
    for size in SIZES:
        point, plain = size_of_header(size, 1), size_of_header(size, 0)
        rows.append(
            row(f"m = {size}, a matrix instead of a vector", "bytes", size**2 - size, [point - plain], above=True)
        )
    return rows


SECTIONS: tuple[Section, ...] = (
    Section(
        name="recipients",
        what="Copies of one message to r members of its local group of m, or to one of another group of six",
        paper="daisy, Sect. 3.4",
        formula="max(r, k) instead of m − 1; 2k + 5 instead of 2(m − 1) + 5",
        count=count_copies,
    ),
    Section(
        name="recipients-words",
        what="The same with all acknowledgements, until everybody has delivered it and knows that it may",
        paper="none",
        formula="2 max(r, k) for k = 1, else 4 max(r, k); 3(m − 1) if it goes to everybody",
        count=count_words,
    ),
    Section(
        name="recipients-header",
        what="Numbers in the header of a message inside a local group of m",
        paper="daisy, Sect. 3.4",
        formula="m² instead of m",
        count=count_entries,
    ),
    Section(
        name="recipients-bytes",
        what="By how many bytes a header is longer",
        paper="none",
        formula="more than m² − m",
        count=count_bytes,
    ),
)
