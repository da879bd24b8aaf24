"""Experiments with foltr: the simulator, attacks, and the reproductions of published results."""
