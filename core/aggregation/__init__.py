"""Aggregation rules that withstand hostile clients: their requirements, and reports of what they did in a round.

`foltr.core.aggregation.round_aggregation` takes updates and a `RuleSpec`; the rules are plain functions on arrays.
"""
