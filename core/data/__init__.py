"""Ranking data: query sets in memory, the readers of published collections, and generated sets."""
