"""How much of an (n, d) array a rule works on at a time: enough to be fast, little enough to need no second copy."""

import numpy as np
from numpy.typing import NDArray

# Below this, fewer and larger pieces save more than memory is worth.
_LEAST_BYTES = 64 * 1024


def block_length(rows: NDArray[np.floating], line: int, most_bytes: int, part: float = 0.25) -> int:
    """How many lines of ``line`` numbers make a block: at most this part of the input, in bounds, at least one."""
    limit = min(max(int(rows.nbytes * part), _LEAST_BYTES), most_bytes)
    return max(1, limit // (max(1, line) * rows.itemsize))
