"""A federation in one process, for the tests of applications: without a broker, a network or a database.

    with FakeFederation(features=2) as federation, SearchRanker(federation.credentials("device-1")) as ranker:
        ranker.record_clicks(ranker.rank([[0.9, 0.1], [0.1, 0.9]]), [1])
        federation.run_round()
        print(ranker.model_version, ranker.weights)

Devices are real: they store, learn, sign and send. Only the federator and what carries messages are replaced, and no
list waits for more clicks (`Privacy.click_window_s`).
"""
# ruff: noqa: SLF001 (the federation and its links are one)

import asyncio
import itertools
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import numpy as np

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.operator.credentials import BrokerAccess, Credentials, device_identity
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.codec import decode, encode
from foltr.core.protocol.fields import Message, model_hash, pack_vector, payload_digest, unpack_vector
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.core.protocol.updates import DenseDelta, ModelUpdate
from foltr.edge_client.runtime import Runtime

_NAME, _TOPICS = "fake", Topics("fake")
_TRAINING = PdgdTraining(min_interactions=1, max_interactions=1000)


class FakeFederation:
    """A federation of linear rankers. Devices take part that are made within its ``with``, with its `credentials`.

    Args:
        features: how many columns the features have, or their schema or its file if the application declares one.
    """

    def __init__(self, features: int | str | Path | FeatureSchema) -> None:
        if isinstance(features, str | Path):
            features = FeatureSchema.read(features)
        self._schema_hash = None if isinstance(features, int) else features.hash
        self._weights = np.zeros(features if isinstance(features, int) else features.n_features, np.float32)
        self._version, self._round, self._is_open = 0, 0, False
        self._operator, self._key = SigningKey.generate(), SigningKey.generate()
        self._numbers, self._serials = itertools.count(1 << 30), itertools.count(1)
        self._watermarks, self._deltas, self._links = dict[str, int](), list[bytes](), list["_FakeLink"]()
        self._patch = patch("foltr.edge_client.runtime.MqttLink", partial(_FakeLink, self))  # a device's link

    def __enter__(self) -> Self:
        self._patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    def credentials(self, name: str) -> Credentials:
        """Return credentials for a device, like those of ``foltr device enrol``."""
        broker = BrokerAccess(broker_url="mqtt://fake.invalid")
        return device_identity(self._operator, self._key.public, _NAME, name, next(self._serials), broker)

    def run_round(self, timeout_s: float = 10.0) -> int:
        """Have all devices send what they recorded, and take the model with the mean of it; return its version, from 1.

        In the thread of an `EdgeClient` use `await asyncio.to_thread(federation.run_round)`. UnavailableError: a device
        did not do it within ``timeout_s``.
        """
        self._round, self._is_open, self._deltas = self._round + 1, True, []
        for link in self._links:
            link.wait_until(lambda one: one.agent.participation.is_informed and one.agent.is_settled, timeout_s)
        if self._deltas:
            self._weights += np.mean([unpack_vector(delta) for delta in self._deltas], axis=0)
        self._version, self._is_open = self._version + 1, False
        for link in self._links:
            link.wait_until(lambda one: one.model_version == self._version, timeout_s)
        return self._version

    def _announced(self) -> dict[str, Message]:
        """Return what a broker would retain."""
        weights, ranker = pack_vector(self._weights), LinearRankerSpec(n_features=len(self._weights))
        told: dict[str, Any] = {"federation": _NAME, "schema_hash": self._schema_hash}
        model = ModelAnnouncement(**told, version=self._version, ranker=ranker, weights=weights)
        told |= {"base_version": self._version, "base_hash": model_hash(weights), "withdraws_below": 0}
        told |= {"training": _TRAINING, "opened_at": 0.0, "closes_at": 0.0}
        round_ = RoundAnnouncement(**told, round=self._round, open=self._is_open)
        status = FederatorStatus(federation=_NAME, online=True, at=0.0, interval_s=3600.0, software_version="fake")
        return {_TOPICS.federator_status: status, _TOPICS.model: model, _TOPICS.round: round_}

    def _answers(self, topic: str, payload: bytes) -> dict[str, Message]:
        """Return the answer to a device's message, if it gets one."""
        name, kind = _TOPICS.parse(topic) or ("", None)
        told: dict[str, Any] = {"federation": _NAME, "client_id": name}
        inbox = _TOPICS.client(name, ClientTopic.INBOX)
        if kind is ClientTopic.UPDATES:
            update = decode(payload, ModelUpdate)
            self._deltas += [update.body.values] if isinstance(update.body, DenseDelta) else []
            told["counted_through"] = self._watermarks[name] = update.through
            return {inbox: UpdateReceipt(**told, update_id=update.update_id, code=ReceiptCode.ACCEPTED)}
        if kind in (ClientTopic.JOIN, ClientTopic.LEAVE):
            told |= {"counted_through": self._watermarks.get(name, 0), "payload_digest": payload_digest(payload)}
            code = ReceiptCode.JOINED if kind is ClientTopic.JOIN else ReceiptCode.LEFT
            return {inbox: MembershipReceipt(**told, code=code)}
        if kind is ClientTopic.FORGET and payload:
            return {inbox: ErasureNotice(**told, code=ReceiptCode.FORGOTTEN, receipt=b"fake")}
        return {}


class _FakeLink(MqttLink):
    def __init__(self, federation: FakeFederation, address: BrokerAddress, **named: Any) -> None:
        super().__init__(address, **named)
        self._federation, self._device = federation, named["on_connected"].__self__
        federation._links.append(self)

    def wait_until(self, is_done: Callable[[Runtime], bool], timeout_s: float) -> None:
        """Tell a device that takes part what is announced, and wait until it has acted on it."""
        if self._task is not None and not self._task.done() and not self._device.agent.participation.left:
            asyncio.run_coroutine_threadsafe(self._wait(is_done, timeout_s), self._task.get_loop()).result()

    async def _wait(self, is_done: Callable[[Runtime], bool], timeout_s: float) -> None:
        device = self._device
        self._hear(self._federation._announced())
        await device._true_within(lambda: is_done(device) or device.blocker is not None, timeout_s)
        if not is_done(device):
            raise UnavailableError(f"{device.client_id} does not take part in the round: {device.state}")

    async def _stay_connected(self) -> None:
        self._device.store.click_window.length_s = 0.0
        self._device._begin_session()
        self._up.set()
        try:
            await self._device._begin_connection()
            self._hear(self._federation._announced())
            await asyncio.Event().wait()
        finally:
            self._up.clear()

    async def publish_in_order(self, messages: Iterable[tuple[str, bytes]], *, retain: bool = False) -> None:  # noqa: ARG002
        for topic, payload in messages:
            asyncio.get_running_loop().call_soon(self._hear, self._federation._answers(topic, payload))

    def _hear(self, messages: dict[str, Message]) -> None:
        for topic, message in messages.items():
            payload = encode(message, topic, next(self._federation._numbers), self._federation._key)
            self._receive(topic, payload, retained=False)
