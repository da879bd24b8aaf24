"""Demonstrations that compare with the simulator or attack: of secure sums, and of an erasure."""
