"""The audit of runs that no single task can hold, in Spark SQL."""
