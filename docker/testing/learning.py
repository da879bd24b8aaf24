"""Quality of a stack's stored models, on the data of its devices' queries."""

import base64
import io

import numpy as np
from stack import Stack

from foltr.core.data.sources import SYNTHETIC, load_data
from foltr.core.evaluation.metrics import mean_ndcg_at_k

SEED = 1
"""The devices' default: their users issue queries of one data set."""


def ndcg_of_model(stack: Stack, version: int | None = None) -> float:
    """Return the mean nDCG@10 of a model on the synthetic test queries; of the newest one by default."""
    which = "" if version is None else f"--version {version}"
    export = f"foltr models export --out /tmp/model.npy {which} >/dev/null && base64 /tmp/model.npy"
    weights = np.load(io.BytesIO(base64.b64decode(stack.execute("federator", "sh", "-c", export))))
    return mean_ndcg_at_k(weights, load_data(SYNTHETIC, SEED).test).mean
