"""The experiments of the underlying papers, each one command with a verdict on every claim.

An experiment is data (`foltr_research.reproductions.experiment.Experiment`): labelled configurations of the simulator,
its figures and tables, and the claims. `foltr reproduce` runs it.
"""
