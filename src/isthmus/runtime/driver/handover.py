"""Deliveries on their way to an application that takes them one by one.

A batch counts as finished with when the application asks for the one after it. Until then it is not confirmed, so it is
not stable, so it takes up room in its sender's window: a slow application slows its senders down, and what waits
here never exceeds what their windows hold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from isthmus.core.endpoint import View
from isthmus.core.message import Batch


class HandOver(AsyncIterator[Batch | View]):
    """An iterator for one consumer. It ends when the process has ended and everything was taken."""

    def __init__(self, finished: Callable[[Batch], None]) -> None:
        self._finished = finished
        self._waiting: deque[Batch | View] = deque()
        self._taken: Batch | View | None = None
        self._consumer: asyncio.Future[None] | None = None
        self._ended = False
        self.asked = 0

    def __len__(self) -> int:
        """How many deliveries wait."""
        return len(self._waiting)

    def put(self, item: Batch | View) -> None:
        self._waiting.append(item)
        self._wake()

    def end(self) -> None:
        """Nothing more will come. What waits can still be taken."""
        self._ended = True
        self._wake()

    def finish_all(self) -> None:
        """The application is gone: whatever waits for it is finished with."""
        self._finish_taken()
        while self._waiting:
            self._taken = self._waiting.popleft()
            self._finish_taken()

    @property
    def idle(self) -> bool:
        """The application waits for us, not we for it."""
        return self._consumer is not None

    async def __anext__(self) -> Batch | View:
        self.asked += 1
        self._finish_taken()
        while not self._waiting:
            if self._ended:
                raise StopAsyncIteration
            if self._consumer is not None:
                raise RuntimeError("two consumers wait for the deliveries of one process; share one instead")
            self._consumer = asyncio.get_running_loop().create_future()
            try:
                await self._consumer
            finally:
                self._consumer = None
        self._taken = self._waiting.popleft()
        return self._taken

    def _finish_taken(self) -> None:
        taken, self._taken = self._taken, None
        if type(taken) is Batch:
            self._finished(taken)

    def _wake(self) -> None:
        if self._consumer is not None and not self._consumer.done():
            self._consumer.set_result(None)
