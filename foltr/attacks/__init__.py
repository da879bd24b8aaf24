"""Hostile clients craft updates to ruin a federation's ranker, for experiments with its defences."""
