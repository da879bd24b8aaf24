"""A device under a policy: which policy it follows, which rounds it refuses, and what it sends masked."""
