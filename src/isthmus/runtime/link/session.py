"""What the two ends of a link remember of each other across connections. Pure: no clock, no socket.

A session is between two lives: two processes, each for as long as it runs. It numbers the frames of either direction
from 1. Frames sent are kept until the other life has said that it has them; so a new connection goes on exactly
behind the last frame that arrived, with nothing lost and nothing twice. With a new life begins a new session; what
was kept for the old one is discarded, since its addressee no longer exists.

Frames of words go before frames of blocks: a frame gets its number when it is first written. What has a number is
written again under the same one, before anything else.

Invariants: the numbered frames that are kept are `acknowledged + 1` … `sent`, in order: first those in `written`,
which are on their way on the present connection, then those in `again`. Behind them come `words`, then `blocks`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from isthmus.core.ids import LinkId, ProcessId
from isthmus.runtime.link.wire import HEADER_SIZE, LinkError, LinkHello, data_header
from isthmus.runtime.problems import RuntimeProblem


class LinkOverflow(RuntimeProblem):
    """A link that is down, or far too slow, was given more than it may keep. The frame was not taken.

    An owner that cannot hold it back either has to stop: to go on without the frame would be to lose it in silence.
    """

    def __init__(self, link: LinkId, limit: int) -> None:
        super().__init__(
            f"Link {link} keeps {limit} bytes for a far end that does not take them, and may not keep more. "
            f"See whether the far site can be reached, or let the link keep more (`LinkLimits.keep`)."
        )
        self.link = link


class LinkSession:
    """One session of link `link` with the process `peer` in its life `life`; at most `limit` bytes are kept."""

    __slots__ = (
        "_again",
        "_blocks",
        "_limit",
        "_link",
        "_sent",
        "_words",
        "_written",
        "acknowledged",
        "kept_bytes",
        "life",
        "peer",
        "received",
    )

    def __init__(self, link: LinkId, peer: ProcessId, life: int, limit: int) -> None:
        self.peer = peer
        self.life = life
        self.received = 0
        self.acknowledged = 0
        self.kept_bytes = 0
        self._link = link
        self._limit = limit
        self._sent = 0
        self._written: deque[Sequence[bytes]] = deque()
        self._again: deque[Sequence[bytes]] = deque()
        self._words: deque[Sequence[bytes]] = deque()
        self._blocks: deque[Sequence[bytes]] = deque()

    @property
    def kept(self) -> int:
        """How many frames the other end has not acknowledged."""
        return len(self._written) + self.unwritten

    @property
    def unwritten(self) -> int:
        return len(self._again) + len(self._words) + len(self._blocks)

    def add(self, *frame: bytes, word: bool) -> int:
        """Take one more frame, or raise `LinkOverflow`. Returns how many bytes it will be on the wire."""
        size = _size_of(frame)
        if self.kept_bytes + size > self._limit:
            raise LinkOverflow(self._link, self._limit)
        (self._words if word else self._blocks).append(frame)
        self.kept_bytes += size
        return size

    def take(self, size: int) -> tuple[list[bytes], int, int]:
        """Frames to be written now, at least one if there is any, about `size` bytes: buffers, frames, bytes."""
        written = self._written
        first = number = self.acknowledged + len(written)
        buffers: list[bytes] = []
        taken = 0
        while self.unwritten and taken < size:
            frame = (self._again or self._words or self._blocks).popleft()
            number += 1
            size_of_frame = _size_of(frame)
            buffers += (data_header(number, size_of_frame - HEADER_SIZE), *frame)
            written.append(frame)
            taken += size_of_frame
        self._sent = max(self._sent, number)
        return buffers, number - first, taken

    def acknowledge(self, received: int) -> None:
        """The other end has everything up to `received`: it need not be kept any more."""
        written = self._written
        count = received - self.acknowledged
        if not 0 <= count <= len(written):
            raise LinkError(self._impossible(received))
        for _ in range(count):
            self.kept_bytes -= _size_of(written.popleft())
        self.acknowledged = received

    def check(self, hello: LinkHello, life: int) -> int:
        """How many of our frames the other end has, as its hello says to us, whose life is `life`. Changes nothing.

        Measured by what was ever sent, not by what was sent on the latest connection: a call that was long under way
        may have replaced the connection on which the other end received more than it knew when it called.
        """
        received = hello.received if hello.known == life else 0
        if not self.acknowledged <= received <= self._sent:
            raise LinkError(self._impossible(received))
        return received

    def resume(self, received: int) -> int:
        """A new connection begins: everything behind `received` is to be written. Returns how many of these again."""
        self._written.extend(self._again)
        self._again.clear()
        self.acknowledge(received)
        self._written, self._again = self._again, self._written
        return self._sent - received

    def _impossible(self, received: int) -> str:
        return (
            f"it claims to have received {received} frames, but {self.acknowledged} were acknowledged "
            f"and {self._sent} sent"
        )


def _size_of(frame: Sequence[bytes]) -> int:
    """Bytes of a frame on the wire, be it in several buffers."""
    return HEADER_SIZE + sum(map(len, frame))
