"""Collections of garbage pass over everything that this process had imported before it imported this.

That is the process that others are forked from (`prepared`), and so are they: a federator looks for garbage when it
starts, and would go through all of it and copy every page by that.
"""

import gc

gc.collect()
gc.freeze()
