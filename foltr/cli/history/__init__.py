"""The commands about rounds, clients and models: what the database remembers of them, and what may be ordered."""
