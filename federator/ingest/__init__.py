"""Ingest workers: processes that take updates and store them, for a leader that closes rounds."""
