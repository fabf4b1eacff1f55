"""Runs the gateway of a log that a broker keeps: what an adapter has to do, and the driver around it."""
