"""The commands that need no federation: data, simulations, sweeps and reproductions."""
