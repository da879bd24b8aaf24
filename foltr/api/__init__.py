"""The HTTP API of one federation: its records, metrics and a web page. It never writes to the database."""
