"""What the papers count, counted on the real protocol code (docs/counts.md)."""
