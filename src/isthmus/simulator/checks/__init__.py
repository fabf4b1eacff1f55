"""What is seen beside the oracles: counters of rare cases, and checks that need the one virtual clock."""
