"""Causal delivery of messages from one process to one other: by matrices, or by a coordinator."""
