"""The topology file: what it says (`model.py`), how it is read, the rules it must keep, and the wiring that follows."""
