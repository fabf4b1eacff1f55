"""The audit of a run that one task can hold, by numpy."""
