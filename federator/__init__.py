"""Rounds: decide who counts, aggregate, publish the next model."""
