"""Secure sums: helpers check the clients of a round, then open their sum, which alone the federator sees."""
