"""The trace: one row per event, the same schema from the simulator, from real runs and from other people's tools.

`schema` says what a row is, `writer` records the rows of one process, `reader` reads traces that may be damaged or
hostile, `history` turns the rows of a run into who sent and delivered what, `causality` says what caused what, and
`story` tells everything that happened to one message.
"""
