"""Federated online learning to rank.

Applications import from here: `from foltr import SearchRanker`. The implementation is in `foltr.edge_client` and is
imported on first use. No other module of foltr imports this one.
"""

import importlib
from typing import TYPE_CHECKING

from foltr.core.version import __version__

if TYPE_CHECKING:
    from foltr.core.protocol.schemas import FeatureSchema
    from foltr.edge_client.client import EdgeClient
    from foltr.edge_client.first_model import FirstModel
    from foltr.edge_client.options import Connection, Experiment, Privacy, Ranking
    from foltr.edge_client.report import Report
    from foltr.edge_client.search_ranker import SearchRanker
    from foltr.edge_client.sums.privacy_limits import PrivacyLimits
    from foltr.edge_client.training.unlearning_limits import UnlearningLimits

__all__ = [
    "Connection",
    "EdgeClient",
    "Experiment",
    "FeatureSchema",
    "FirstModel",
    "Privacy",
    "PrivacyLimits",
    "Ranking",
    "Report",
    "SearchRanker",
    "UnlearningLimits",
    "__version__",
]

_DOOR = {
    "Connection": "foltr.edge_client.options",
    "EdgeClient": "foltr.edge_client.client",
    "Experiment": "foltr.edge_client.options",
    "FeatureSchema": "foltr.core.protocol.schemas",
    "FirstModel": "foltr.edge_client.first_model",
    "Privacy": "foltr.edge_client.options",
    "PrivacyLimits": "foltr.edge_client.sums.privacy_limits",
    "Ranking": "foltr.edge_client.options",
    "Report": "foltr.edge_client.report",
    "SearchRanker": "foltr.edge_client.search_ranker",
    "UnlearningLimits": "foltr.edge_client.training.unlearning_limits",
}


def __getattr__(name: str) -> object:
    if name not in _DOOR:
        raise AttributeError(f"module 'foltr' has no attribute {name!r}")
    return getattr(importlib.import_module(_DOOR[name]), name)
