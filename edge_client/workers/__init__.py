"""Several processes of one web server share one device: one of them owns its store, and the others ask it."""
