"""Rankers and how they learn from clicks, as functions on arrays; nothing here knows of a federation."""
