"""From the stored updates of a round to the next model and its rows; again, when a round is replayed."""
