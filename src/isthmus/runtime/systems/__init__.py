"""Puts the members of each kind of system together: protocol, connections, trace, driver."""
