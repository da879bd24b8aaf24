"""A helper opens sums of masks, each once, with its noise in them; it never sees a vector."""
