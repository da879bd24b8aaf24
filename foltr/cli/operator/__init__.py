"""The operator's commands: who may take part in a federation, and how its services reach the broker."""
