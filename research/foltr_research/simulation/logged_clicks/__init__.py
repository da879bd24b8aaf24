"""Replays logged queries and clicks by the clock: devices send when their users search, and rounds end by time."""
