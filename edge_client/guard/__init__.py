"""A device's guard holds lists back, judges a new model by them, and may refuse it."""
