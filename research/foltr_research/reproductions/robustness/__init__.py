"""The experiments with hostile clients: attacks, rules, and what is left of the ranker."""
