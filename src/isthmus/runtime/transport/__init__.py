"""How PDUs reach the members of a system: TCP between peers, or a broadcast medium."""
