"""Learning from a logging policy's lists without exploration: click models, estimates of relevance, and methods."""
