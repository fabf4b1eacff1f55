"""The drawing kit: markup, scales and a chart, as SVG written by hand. Knows no Spark and no trace."""
