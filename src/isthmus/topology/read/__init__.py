"""Topology files into a model: one file per table, each of which names whatever is wrong."""
