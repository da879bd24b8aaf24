"""``foltr doctor``: what is missing on this machine, at the broker and in the database, and what to do about it."""
