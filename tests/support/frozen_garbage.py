"""Collections of garbage pass over everything that this process had imported before it imported this.

The process that others are forked from (`prepared_processes`) imports it, and so do they: a federator collects garbage
when it starts, and would go through all of it and copy every page by that.
"""

import gc

gc.collect()
gc.freeze()
