"""The engine of the audit: numpy functions over addresses, places and edges, for runs of any size. No Spark in here."""
