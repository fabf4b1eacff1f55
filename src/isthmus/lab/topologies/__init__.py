"""Random topologies: made, simulated, and made small where a run of one fails."""
