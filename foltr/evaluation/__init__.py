"""How good a ranking is, and how a simulated user clicks on it."""
