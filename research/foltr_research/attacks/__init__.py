"""Attacks for experiments: updates crafted to ruin a ranker, and telling from models who taught them."""
