"""How programs meet a broadcast system: one file per provider."""
