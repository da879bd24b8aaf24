"""``foltr demo``: a federation on this machine, which learns, and of which a device may be forgotten."""
