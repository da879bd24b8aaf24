"""The HTTP API of one federation: what its database has, metrics, and a page to look at. It writes nothing there."""
