"""What a topology file says of a log, with the secrets that it only points to."""

from __future__ import annotations

import os
import re
from pathlib import Path

from isthmus.runtime.log.interface import LogSettings
from isthmus.runtime.problems import RuntimeProblem
from isthmus.topology.kinds.log import LogTable
from isthmus.topology.model import System, Topology

_MOST_OF_A_SECRET = 64 << 10


def settings_of(topology: Topology, system: System, run: str) -> LogSettings:
    """Where the log is and what opens it. Paths are from where the file is; secrets come from files or environment."""
    table = system.own(LogTable)
    base = Path(topology.file).parent
    options: dict[str, str] = {}
    for key, text in table.options.items():
        name, _, where = key.rpartition("-")
        if key.endswith("-env"):
            options[name] = _from_environment(topology, system, key, text)
        elif key in ("password-file", "token-file"):
            options[name] = _from_file(topology, system, key, base / text)
        else:
            options[key] = str(base / text) if where == "file" else text
    return LogSettings(
        system=system.name,
        provider=system.provider,
        url=table.url,
        streams=table.streams,
        state=re.sub(r"[^A-Za-z0-9_-]", "_", f"{topology.run_of(run, system.name)}-{system.name}"),
        options=options,
    )


def _from_environment(topology: Topology, system: System, key: str, variable: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise RuntimeProblem(
            f"{topology.file}: systems.{system.name}.{key}: there is no {variable} in the environment. Set it."
        )
    return value


def _from_file(topology: Topology, system: System, key: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST_OF_A_SECRET).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise RuntimeProblem(f"{topology.file}: systems.{system.name}.{key}: {path}: {reason}") from error
