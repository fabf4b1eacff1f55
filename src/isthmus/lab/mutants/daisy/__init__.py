"""Mistakes in a daisy."""
