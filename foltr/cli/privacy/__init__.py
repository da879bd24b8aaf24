"""The commands that say what secure sums cost, and look for mistakes in what they promise."""
