"""The command that says on one screen how a federation is."""
