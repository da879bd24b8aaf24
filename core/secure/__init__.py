"""The numbers of secure sums: noise and its guarantees, updates as integers, masks that cancel, proofs of norms.

Everything is a function on arrays of integers, without messages or stored keys; randomness is an argument.
"""
