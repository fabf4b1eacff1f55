"""Benchmarks: each prints ratios measured side by side in one run. A benchmark is not a test."""
