"""Many simulations, and their results as files."""
