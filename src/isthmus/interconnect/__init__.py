"""Many systems made into one: the topology file, and the joins that forward messages between systems.

The topology comes in steps, one file each: `topology_file` (text in, topology or refusal out) calls `topology_reader`
and `simulation_table` (the shape of the file), then `topology_checks` (the rules of the papers). `topology` holds
what was read; `wiring` says which gateway forwards whose messages over which link.
"""
