"""Making a model without a client that left: the arithmetic of it, and measures of how well that was done."""
