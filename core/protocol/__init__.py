"""The messages between processes, as bytes, with their signatures and topics."""
