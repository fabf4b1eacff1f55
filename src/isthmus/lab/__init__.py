"""How we come to trust the rest: mutants, counts, benchmarks, the long campaign. No user's program imports it."""
