"""A device compares the newest global model with the anchor by its user's clicks, and votes on which is better."""
