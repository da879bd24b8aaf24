"""A simulated federation that a client leaves, and ways to unlearn it."""
