"""What the adaptive rule remembers of clients, for tests that store it."""

import numpy as np

from foltr.core.aggregation.client_records import ClientRecords


def memory_of(*client_ids: str, dim: int = 3, n_rounds: int = 1) -> bytes:
    """What it remembers of updates of ``dim`` values, after so many rounds that all of these clients were in."""
    records = ClientRecords.empty(dim)
    for _ in range(n_rounds):
        own = records.for_clients(client_ids)
        own["alignment"] += np.arange(1.0, len(client_ids) + 1)
        records = records.after(client_ids, own, records.progress + np.float32(0.5), undecided=False)
    return records.to_bytes()
