"""The state of a federation, read in one place for the command line and the HTTP API."""
