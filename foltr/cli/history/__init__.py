"""Commands that show and control rounds, clients and models."""
