"""Numeric code stands on compiled kernels with their cache, and on streams of random numbers."""
