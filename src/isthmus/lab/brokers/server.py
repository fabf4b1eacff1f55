"""One broker on a free port of this machine, with a directory of its own, ended by its process id and nothing else."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

from isthmus.lab.harness.os_process import PATIENCE, Ports
from isthmus.runtime.problems import RuntimeProblem
from isthmus.runtime.transport.address import LOOPBACK

_LOOK_EVERY = 0.02
_LAST_WORDS = 2000


class NoServer(RuntimeProblem):
    """A broker cannot be started here: its package is missing, or it ended at once. The text says what to install."""


class Server(ABC):
    """A broker of one kind. `start` returns when it takes calls; everything that it keeps is below `directory`.

    It keeps its port and its data through `kill`, `stop` and `start`.
    """

    kind: ClassVar[str]

    def __init__(self, directory: Path, ports: int = 1) -> None:
        self.directory = directory
        self._held = Ports()
        self.port = self._held.take(ports)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """As a topology file says it."""

    @abstractmethod
    def prepare(self) -> None:
        """Before the first start: write a configuration below `directory`, format disks. Raises `NoServer`."""

    @abstractmethod
    def command(self) -> Sequence[str]: ...

    def answers(self) -> bool:
        """Whether it takes calls by now. A broker that listens before it can serve looks closer."""
        with suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=1):
            return True
        return False

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.kind} was never started"
        return self._process.pid

    @property
    def log(self) -> Path:
        """What it says to people."""
        return self.directory / "server.log"

    def start(self) -> Self:
        if self._process is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.prepare()
        # What holds the port lets only those listen on it that ask for it, and not every broker does.
        self._held.release()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                list(self.command()), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.directory
            )
        give_up = time.monotonic() + PATIENCE
        while not self.answers():
            if not self.alive or time.monotonic() > give_up:
                words = self.log.read_text(errors="replace")[-_LAST_WORDS:].strip()
                self.kill()
                raise NoServer(f"{self.kind} does not run on {LOOPBACK}:{self.port}; its last words: {words}")
            time.sleep(_LOOK_EVERY)
        return self

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """Have it end in good order, by force if it takes too long."""
        if self._process is not None and self.alive:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.kill()
        self._held.release()

    def pause(self) -> None:
        """SIGSTOP, and wait until all its threads have stopped: it answers nothing until `go_on`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.alive:
            self.go_on()
        self.stop()
