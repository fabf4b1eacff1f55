"""Causal order to any set of processes in a tree of groups with short headers (docs/design/daisy.md)."""
