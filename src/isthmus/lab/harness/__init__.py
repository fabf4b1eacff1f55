"""Real processes for benchmarks and tests: started, fed, asked and killed."""
