"""A device ranks, records clicks, trains and sends."""
