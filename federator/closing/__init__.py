"""From a round's stored updates to the next model and its rows; also when a round is replayed."""
