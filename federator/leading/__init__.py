"""Who leads: to wait for a federation's lease, to keep it, and to know when it is lost."""
