"""A device's memory across restarts: one SQLite file, and what may be asked of it."""
