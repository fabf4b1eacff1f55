"""How applications meet a broadcast system: one file per kind of system, all behind the interface in `base.py`."""
