"""Rankers and what learns them from clicks, as functions on arrays; nothing here knows of a federation."""
