"""The orders that a group can keep, each a file, and what the group layer asks of them (`order.py`)."""
