"""The device side: rank, record clicks, train, send."""
