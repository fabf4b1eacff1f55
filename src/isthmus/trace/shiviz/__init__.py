"""Traces as logs that ShiViz draws, and such logs as traces (docs/design/shiviz.md)."""
