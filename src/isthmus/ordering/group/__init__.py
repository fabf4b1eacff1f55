"""A group: reliable streams, failure detection, views, stability, one member as an Endpoint (docs/design/group.md)."""
