"""Simulated systems, one file per kind: their processes, their applications, and when they are at rest."""
