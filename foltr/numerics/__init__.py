"""What all numeric code stands on: compiled kernels with their cache, and the streams of random numbers."""
