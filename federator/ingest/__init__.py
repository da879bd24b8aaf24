"""Ingest workers: processes that take and store updates, while a leader closes rounds."""
