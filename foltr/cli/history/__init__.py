"""The commands that read the database: rounds, clients, models, and why a round waits."""
