"""A device remembers across restarts in one SQLite file."""
