"""Aggregation rules that withstand hostile clients, what they need, and what a round says it did.

`foltr.core.aggregation.round_aggregation` takes a round's updates and a `RuleSpec`; the rules themselves are plain
functions on arrays.
"""
