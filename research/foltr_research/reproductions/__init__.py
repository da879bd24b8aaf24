"""The experiments of the papers this work stands on, each one command, each with a verdict on every claim.

An experiment is data (`foltr_research.reproductions.experiment.Experiment`): configurations of the simulator with
labels, the figures and tables to make of them, and the claims to set beside them. `foltr reproduce` runs them.
"""
