"""A device under a policy: which policy that is, to which rounds it says no, and what it sends masked."""
