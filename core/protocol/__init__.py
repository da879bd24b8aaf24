"""Messages cross process boundaries: they become bytes, are signed, and go on topics."""
