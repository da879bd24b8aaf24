"""The commands of the research package: attacks, simulations, sweeps, reproductions and demonstrations."""
