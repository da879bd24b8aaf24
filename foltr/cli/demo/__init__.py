"""``foltr demo``: a federation on this machine, which learns on real data."""
