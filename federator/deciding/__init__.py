"""Decides on each message of a federation, without I/O: state and a reading in, decided data out."""
