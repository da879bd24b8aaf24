"""Which code a run uses, and a digest of it."""
