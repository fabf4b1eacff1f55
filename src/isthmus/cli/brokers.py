"""What the commands about brokers share: which systems of a topology are meant, and how their logs are opened."""

from __future__ import annotations

from pathlib import Path

from isthmus.adapters.table import make_log
from isthmus.cli.console import fail
from isthmus.runtime.log.interface import Log
from isthmus.runtime.log.settings import settings_of
from isthmus.topology.model import System, Topology


def broker_of(topology: Topology, name: str) -> System:
    """The system of this name, which has to be a broker that something joins."""
    try:
        system = topology.system(name)
    except KeyError:
        there = ", ".join(each.name for each in topology.systems if each.acts_alone)
        fail(f"{topology.file}: there is no system {name!r}; its brokers are {there or 'none'}")
    if not system.acts_alone:
        fail(f"{topology.file}: systems.{name} is no broker, but {system.provider}")
    if not topology.is_joined(name):
        fail(f"{topology.file}: nothing joins {name}, so isthmus keeps nothing there; add [[joins]]")
    return system


def log_of(topology: Topology, system: System, run_name: str | None) -> Log:
    """Its log, not open yet, as the gateways of this run have it."""
    return make_log(settings_of(topology, system, run_name or Path(topology.file).stem))
