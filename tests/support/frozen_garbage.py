"""Collections of garbage in forked processes (`prepared_processes`) pass over what was imported before this was."""

import gc

gc.collect()
gc.freeze()
