"""An app for Flower: see research/benchmarks/flower_rounds.py."""
