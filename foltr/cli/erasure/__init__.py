"""The commands that forget a client, show how far that is, and check the proof of it."""
