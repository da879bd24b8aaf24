"""Simulated rounds for whole blocks of clients in machine code, to the same bits as one interaction at a time."""
