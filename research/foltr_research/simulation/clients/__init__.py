"""Clients take part in a simulated federation: populations, the split of data among them, attackers, streams."""
