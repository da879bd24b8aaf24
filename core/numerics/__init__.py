"""The basis of numeric code: compiled kernels with their cache, and streams of random numbers."""
