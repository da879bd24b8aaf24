"""Simulated rounds for blocks of clients in machine code, bit for bit equal to one interaction at a time."""
