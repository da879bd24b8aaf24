"""Decides what each message of a federation amounts to, without I/O: state and a reading in, decided data out."""
