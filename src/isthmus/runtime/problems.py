"""What can go wrong at run time for reasons outside the code: one type each, with the way out in the message."""

from __future__ import annotations


class RuntimeProblem(Exception):
    """Something that a user can understand and change. Its text is complete: print it and no traceback."""


class AddressInUse(RuntimeProblem):
    """Another program (or another process of this run) already listens there."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"{host}:{port} is already in use. Stop the program that listens there "
            f"(`ss -ltnp 'sport = :{port}'` names it) or give this process another port in the address book."
        )
        self.host = host
        self.port = port


class AddressUnusable(RuntimeProblem):
    """The machine cannot listen there at all: not its address, not permitted, not a name that resolves."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(
            f"Cannot listen on {host}:{port}: {reason}. Use an address of this machine and a free port above 1023."
        )
        self.host = host
        self.port = port


class NotAccepting(RuntimeProblem):
    """The process is stopping or has stopped, so it takes no new messages.

    `accepted` is how many messages of the refused call were taken before: they are seen through like all others.
    """

    def __init__(self, why: str, accepted: int = 0) -> None:
        super().__init__(f"The process accepts no more messages: {why}.")
        self.accepted = accepted


class NotStable(RuntimeProblem):
    """The process has ended before it learned that a message of its own is stable. It may be, or become so."""

    def __init__(self, seq: int, why: str) -> None:
        super().__init__(f"Message {seq} is not known to be stable: its sender has ended ({why}).")
        self.seq = seq
