"""What crosses a process boundary: the messages, how they become bytes, who signs them, and on which topics they go."""
