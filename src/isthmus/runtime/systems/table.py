"""The table of kinds: how each is run for real, one line each."""

from __future__ import annotations

from isthmus.runtime.systems.acknowledged import ACKNOWLEDGED
from isthmus.runtime.systems.clusters import CLUSTERS
from isthmus.runtime.systems.daisy import DAISY
from isthmus.runtime.systems.group import GROUP
from isthmus.runtime.systems.kind import RunKind

KINDS: dict[str, RunKind] = {
    "group": GROUP,
    "acknowledged": ACKNOWLEDGED,
    "clusters": CLUSTERS,
    "daisy": DAISY,
}
