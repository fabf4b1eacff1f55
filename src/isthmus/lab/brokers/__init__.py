"""Real brokers, started from packages on free loopback ports, for tests, benchmarks and the demo."""
