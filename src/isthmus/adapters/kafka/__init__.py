"""Kafka: topics of one partition, or single partitions, each in an order of its own. See docs/brokers.md."""

from __future__ import annotations

from isthmus.adapters.kafka.log import KafkaLog

__all__ = ["KafkaLog"]
