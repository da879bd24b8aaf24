"""Secure sums: helpers check the clients of a round, then open their sum; the federator sees only that."""
