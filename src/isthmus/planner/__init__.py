"""What to expect of a topology: the papers' expressions, and a forecast of what isthmus makes of it."""
