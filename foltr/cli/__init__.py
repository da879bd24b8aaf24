"""The command line. It is the composition root: only it may import every other package (lazily)."""
