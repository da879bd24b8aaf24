"""A device's guard: what it holds back, how it judges a new model, and what it refuses."""
