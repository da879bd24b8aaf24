"""An update of device-7 in the federation mail, of which a test says what matters to it."""

import numpy as np

from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.updates import DenseDelta, ModelUpdate, UpdateBody


def made_update(body: UpdateBody | None = None, **fields: object) -> ModelUpdate:
    """In round 4, upon model 3, of the interactions 1 to 5."""
    usual = {"federation": "mail", "client_id": "device-7", "update_id": "a" * 32, "round": 4, "base_version": 3}
    usual |= {"after": 0, "through": 5, "base_hash": bytes(16), "n_interactions": 5}
    return ModelUpdate(**usual | {"body": body or dense([1.0])} | fields)


def dense(values: object) -> DenseDelta:
    """Every weight's change."""
    packed = pack_vector(np.asarray(values))
    return DenseDelta(dim=np.size(values), values=packed)
