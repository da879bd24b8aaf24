"""Attacks for experiments: crafted updates that ruin a ranker, and inference from models about clients."""
