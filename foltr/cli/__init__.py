"""The command line: the composition root, the only place that may import everything (lazily)."""
