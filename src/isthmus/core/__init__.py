"""What every protocol is written in: ids, messages, the Endpoint contract, clocks, hold-back, wire codec.

Nothing here knows a network, a clock or a file. Names live at the edges (topology, trace, terminal); in here
processes are small integers.
"""
