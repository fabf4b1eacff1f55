"""One broadcast system: reliable streams, failure detection, views, stability, and the orders on top.

Design note: docs/design/group.md. Everything here is pure: no clock, no socket, no randomness.
"""
