"""The shared kernel of foltr: messages, rankers, learners, click models, data, metrics, aggregation.

Nothing here does I/O but the readers of data files; nothing here knows asyncio.

An application finds its door here, `from foltr import SearchRanker`: what stands behind it is in `edge_client`, and is
imported when it is asked for. That is the one exception to the rule that the kernel imports nothing above it.
"""

import importlib
from typing import TYPE_CHECKING

from foltr.version import __version__

if TYPE_CHECKING:
    from edge_client.client import EdgeClient
    from edge_client.options import Connection, Experiment, Privacy, Ranking
    from edge_client.search_ranker import SearchRanker
    from edge_client.sums.privacy_limits import PrivacyLimits
    from edge_client.training.unlearning_limits import UnlearningLimits
    from foltr.protocol.schemas import FeatureSchema

__all__ = [
    "Connection",
    "EdgeClient",
    "Experiment",
    "FeatureSchema",
    "Privacy",
    "PrivacyLimits",
    "Ranking",
    "SearchRanker",
    "UnlearningLimits",
    "__version__",
]

_DOOR = {
    "Connection": "edge_client.options",
    "EdgeClient": "edge_client.client",
    "Experiment": "edge_client.options",
    "FeatureSchema": "foltr.protocol.schemas",
    "Privacy": "edge_client.options",
    "PrivacyLimits": "edge_client.sums.privacy_limits",
    "Ranking": "edge_client.options",
    "SearchRanker": "edge_client.search_ranker",
    "UnlearningLimits": "edge_client.training.unlearning_limits",
}


def __getattr__(name: str) -> object:
    if name not in _DOOR:
        raise AttributeError(f"module 'foltr' has no attribute {name!r}")
    return getattr(importlib.import_module(_DOOR[name]), name)
