"""The yardstick: an asyncio loop that moves frames between n processes on loopback, and does nothing else."""

from __future__ import annotations

import asyncio
import struct
import time

_LENGTH = struct.Struct(">I")
WRITE_BUFFER = 1 << 20


class _Counting(asyncio.Protocol):
    """Cuts what arrives into frames by their length and counts them."""

    def __init__(self) -> None:
        self.frames = 0
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        offset, size = 0, len(buffer)
        while size - offset >= _LENGTH.size:
            end = offset + _LENGTH.size + _LENGTH.unpack_from(buffer, offset)[0]
            if end > size:
                break
            self.frames += 1
            offset = end
        self._buffer = buffer[offset:]


class _Writing(asyncio.Protocol):
    """A connection that says when it is full."""

    def __init__(self) -> None:
        self.full = False

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False


async def plain_flood(processes: int, frame: bytes, seconds: float) -> float:
    """Frames per second that reach an application, each process's own included."""
    loop = asyncio.get_running_loop()
    counters: list[_Counting] = []

    def accept() -> _Counting:
        counters.append(_Counting())
        return counters[-1]

    servers = [await loop.create_server(accept, "127.0.0.1", 0) for _ in range(processes)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    lines: list[list[tuple[asyncio.Transport, _Writing]]] = []
    for process in range(processes):
        mine = []
        for other in range(processes):
            if other != process:
                transport, writing = await loop.create_connection(_Writing, "127.0.0.1", ports[other])
                transport.set_write_buffer_limits(WRITE_BUFFER)
                mine.append((transport, writing))
        lines.append(mine)
    own = 0
    started = time.perf_counter()
    while (elapsed := time.perf_counter() - started) < seconds:
        for mine in lines:
            if not any(writing.full for _, writing in mine):
                own += 1
                for transport, _ in mine:
                    transport.write(frame)
        await asyncio.sleep(0)
    frames = own + sum(counter.frames for counter in counters)
    for mine in lines:
        for transport, _ in mine:
            transport.abort()
    for server in servers:
        server.close()
    await asyncio.sleep(0)
    return frames / elapsed
