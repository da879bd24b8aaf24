"""How a federation is, for those who look after it: what the command line and the HTTP API show, read in one place."""
