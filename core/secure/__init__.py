"""The numbers of secure sums: noise and what it promises, updates as integers, masks that cancel, proofs of norms.

All is functions on arrays of integers, without messages, keys of anybody, or I/O but the randomness that it is given.
"""
