"""Joins: how gateways carry messages between systems, in order and through failures (docs/design/joins.md)."""
