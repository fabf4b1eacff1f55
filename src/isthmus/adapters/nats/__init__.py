"""Logs made of JetStream streams of NATS servers; the protocol is spoken here, without a client library."""

from isthmus.adapters.nats.log import NatsLog

__all__ = ["NatsLog"]
