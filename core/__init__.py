"""What every part of foltr computes with: messages, keys, rankers, learners, aggregation, privacy, metrics.

Nothing here knows the network or the event loop.
"""
