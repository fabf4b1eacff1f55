"""The trace: one row per event, the same schema from the simulator, from real runs and from other people's tools.

`columns` is the table of columns and events, `schema` the class of a row, `writer` records the rows of one process,
`rows` reads them out of files that may be damaged, hostile or still growing, `reader` reads whole traces. `history`
turns the rows of a run into who sent and delivered what, `causality` says what caused what, and `story` tells
everything that happened to one message.
"""
