"""PostgreSQL: tables that clients insert into are a log, in the order of commits (docs/brokers.md, "PostgreSQL")."""

from __future__ import annotations

from isthmus.adapters.postgres.log import PostgresLog

__all__ = ["PostgresLog"]
