"""The command line: one thin module per command. What a command does is done elsewhere; this is how it looks."""
