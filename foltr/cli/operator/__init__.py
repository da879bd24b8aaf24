"""The operator's commands: who may take part, and the orders that the federator obeys."""
