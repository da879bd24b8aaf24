"""The clients of a simulated federation: populations, the split of data among them, attackers, streams."""
