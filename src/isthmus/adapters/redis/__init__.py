"""Redis and Valkey: a stream is a log (docs/brokers.md, "Redis and Valkey")."""

from __future__ import annotations

from isthmus.adapters.redis.log import RedisLog

__all__ = ["RedisLog"]
