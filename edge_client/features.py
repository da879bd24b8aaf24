"""A device scales its application's declared features, and compares them with the federation's.

If the two differ, the device ranks in the application's order, stores clicks with the hash of their schema, and sends
nothing.

Without a schema the application provides numbers in [0, 1]. Others are learned badly, because a step of learning grows
with the features; that is logged once.
"""

import threading
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from foltr.core.errors import MessageError
from foltr.core.learning.rows import Rows
from foltr.core.logs import get_logger
from foltr.core.protocol.schemas import FeatureSchema

if TYPE_CHECKING:
    from foltr.edge_client.trust import Trust

log = get_logger(__name__)

# How far rounding, or a new document slightly beyond a bound, may move 0 and 1.
_TOLERANCE = 0.01


class Features:
    """The features of one device's application.

    Args:
        schema: None if the application scales them itself.
        trust: whose operator publishes the federation's schema; None trusts nobody.

    Attributes:
        remarks: what the application's developer should know of them.
    """

    def __init__(self, schema: FeatureSchema | None, trust: "Trust | None") -> None:
        self.schema = schema
        self.hash = None if schema is None else schema.hash
        self._trust = trust
        self._published: FeatureSchema | None = None
        self._lock = threading.Lock()
        self.remarks: tuple[str, ...] = ()

    def scaled(self, features: Rows) -> Rows:
        """Scale features by the schema; without one, or without documents, return them unchanged.

        Raises:
            DataError: as `FeatureSchema.normalise`.
        """
        no_documents = isinstance(features, list | tuple) and not features
        return features if self.schema is None or no_documents else self.schema.normalise(features)

    def warn_unscaled(self, features: npt.NDArray[np.float32], span: tuple[float, float]) -> None:
        """Log once if unscaled features are far from [0, 1].

        Args:
            features: (documents, features).
            span: the least and the largest of them.
        """
        if self.remarks or self.schema is not None or (span[0] >= -_TOLERANCE and span[1] <= 1 + _TOLERANCE):
            return
        with self._lock:
            if not self.remarks:
                self.remarks = (_far_out(features),)
                log.warning("features_out_of_range", cause=self.remarks[0])

    def receive_published(self, payload: bytes) -> None:
        """Take the federation's schema as published by the operator. Only used in messages: a hash decides."""
        credentials = None if self._trust is None else self._trust.credentials
        if credentials is None or not payload:
            return
        from foltr.core.protocol.signed_documents import read_schema

        try:
            published = read_schema(payload, credentials.operator_keys, credentials.federation).content
        except MessageError as error:
            log.warning("schema_refused", client_id=credentials.name, cause=str(error))
            return
        if self._published is None or published.version >= self._published.version:
            self._published = published

    def difference(self, announced: bytes | None) -> str | None:
        """Describe how the federation's features differ from these; None if they are the same.

        Args:
            announced: the hash of the federation's schema; None without one.
        """
        if announced == self.hash:
            return None
        own = "no schema" if self.schema is None else f"schema {_named(self.schema)}"
        if announced is None:
            return f"this application has {own}, and the federation none"
        published = self._published
        if published is None or published.hash != announced:
            return f"this application has {own}, and the federation the one with hash {announced.hex()[:16]}"
        words = f"this application has {own}, and the federation {_named(published)}"
        return words if self.schema is None else f"{words}: {first_difference(self.schema, published)}"


def _far_out(features: npt.NDArray[np.float32]) -> str:
    """Describe the column of (documents, features) that is farthest from [0, 1], and what to do about it."""
    low, high = features.min(axis=0), features.max(axis=0)
    column = int(np.argmax(np.maximum(-low, high - 1)))
    return (
        f"features: column {column} has values from {low[column]:g} to {high[column]:g}, but learning needs values "
        "from 0 to 1: give a schema, which scales them (docs/features.md; foltr schema new makes one), or scale "
        "them"
    )


def first_difference(own: FeatureSchema, federations: FeatureSchema) -> str:
    """Describe the first difference between two schemas."""
    for column, (mine, theirs) in enumerate(zip(own.features, federations.features, strict=False)):
        if mine.name != theirs.name:
            return f"column {column} is {mine.name!r} here and {theirs.name!r} there"
        if mine != theirs:
            return f"{mine.name!r} is scaled differently"
    if own.n_features != federations.n_features:
        return f"{own.n_features} features here and {federations.n_features} there"
    return "the same features under another name or version"


def _named(schema: FeatureSchema) -> str:
    return f"{schema.name} {schema.version} ({schema.hash.hex()[:16]})"
