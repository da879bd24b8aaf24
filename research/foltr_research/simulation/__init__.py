"""Simulated federations in one process."""
