"""Traces as logs that ShiViz draws (docs/design/shiviz.md)."""
