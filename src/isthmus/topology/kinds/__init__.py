"""The kinds of system that a topology file knows: each has a file, and a line in the table (`table.py`)."""
