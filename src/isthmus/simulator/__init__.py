"""Deterministic simulation: the real protocol code in virtual time, over a network that does its worst.

One seed decides everything: equal seeds give byte-identical traces. Oracles judge a run by its trace alone.
Design note: docs/design/simulator.md.
"""
