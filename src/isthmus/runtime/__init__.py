"""Endpoints in the real world: asyncio, TCP, signals, traces. Design note: docs/design/runtime.md."""
