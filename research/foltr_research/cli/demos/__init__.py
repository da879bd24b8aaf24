"""Demonstrations of secure sums and of an erasure, with attackers and comparisons with the simulator."""
