"""Mutants: the protocols with one thing wrong, each of which the simulator must catch."""
