"""A simulated federation that a client leaves, and what the others keep to learn again from."""
