"""The experiments with hostile clients: attacks, rules, and the quality that remains."""
