"""Who takes part in a simulated federation: populations, how data is split among them, attackers, and their streams."""
