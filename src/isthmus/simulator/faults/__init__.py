"""What goes wrong in a simulated run: drawn from its seed before it starts, then carried out."""
