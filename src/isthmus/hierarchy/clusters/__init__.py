"""Causal order among processes in a tree of clusters (docs/design/clusters.md)."""
