"""The working copy of the model on a device: what it learns from clicks, and again from kept interactions."""
