"""An app for Flower: see benchmarks/flower_rounds.py."""
