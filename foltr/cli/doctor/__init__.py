"""``foltr doctor``: find problems on this machine, at the broker and in the database, with the next steps."""
