"""Metrics say how good a ranking is, click models how a simulated user clicks on it."""
