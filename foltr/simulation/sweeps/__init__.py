"""Many simulations, their results as files, and what a kept result depends on."""
