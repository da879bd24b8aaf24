"""The arithmetic of making a model without a client, and measures of its quality."""
